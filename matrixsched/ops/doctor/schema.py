"""The tables of an installation, compared with what the migrations of this library make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matrixsched.ops.doctor.words import listed, of_sql
from matrixsched.ops.findings import Finding, fault, note, ok, warning
from matrixsched.ops.remedies import INSTALLATION
from matrixsched.store.facts import Catalogue, PostgresFacts, SchemaFacts
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION, Migration
from matrixsched.store.statements import Dialect, namespace

INVALID = "(invalid)"
_MIGRATIONS_ARE_READ = "migrations"


def judge_schema(
    facts: SchemaFacts, *, dialect: Dialect, installation: str, expected: Catalogue, library: Sequence[Migration]
) -> Iterator[Finding]:
    if not facts.exists:
        named = "" if installation == INSTALLATION else f" --installation {installation}"
        yield fault(
            "schema",
            f"there is no installation {installation!r} in this database",
            f"Run `matrixsched init{named}` once",
        )
        return
    if facts.is_locked:
        yield warning(
            "schema",
            "somebody has one of our tables locked against everybody else, so they were not compared; statements wait",
            "see the lock waits, and what is said of transactions",
        )
        return
    yield from _version(facts)
    yield from _checksums(facts, library)
    if facts.version == LIBRARY_SCHEMA_VERSION:
        yield from _drift(facts.catalogue, expected, namespace(dialect, installation))


def _version(facts: SchemaFacts) -> Iterator[Finding]:
    newest, version = LIBRARY_SCHEMA_VERSION, facts.version
    if version is None:
        yield fault("schema", "the version of the installation cannot be read", "see what is said of its privileges")
    elif version < newest:
        yield fault("schema", f"schema {version}, this library makes {newest}", "`matrixsched upgrade`")
    elif facts.oldest_library is not None and facts.oldest_library > newest:
        yield fault(
            "schema",
            f"schema {version} needs a library that knows schema {facts.oldest_library}; this one knows {newest}",
            "`pip install --upgrade matrixsched`",
        )
    elif version > newest:
        yield note(
            "schema",
            f"schema {version} is newer than this library, which knows {newest}: they work together, but what was "
            "added cannot be compared",
            "let the newest version of the library look at it",
        )
    else:
        form = ", in distributed form" if facts.is_distributed else ""
        yield ok("schema", f"schema {version}, the newest that this library knows{form}")


def _checksums(facts: SchemaFacts, library: Sequence[Migration]) -> Iterator[Finding]:
    ours = {migration.number: migration for migration in library}
    other = [
        f"{number:04}_{ours[number].name}"
        for number, checksum in sorted(facts.checksums.items())
        if number in ours and ours[number].checksum != checksum
    ]
    if other:
        yield fault(
            "migrations",
            f"{listed(other)} was applied in another form than this library has: it, or the note of it, was changed",
            "use the release of matrixsched that made it; no `upgrade` is carried out until they agree",
        )


def _drift(found: Catalogue, expected: Catalogue, prefix: str) -> Iterator[Finding]:
    lost = [name for name in expected if name not in found]
    lost_tables = {name for name in lost if _kind(name) == "table"}
    changed = [name for name in expected if name in found and found[name] != expected[name]]
    findings = [
        *(_lost(name, expected[name], prefix) for name in lost if f"table {_table(name)}" not in lost_tables),
        *(fault("drift", f"{name} is missing", _RESTORE) for name in sorted(lost_tables)),
        *(_changed(name, found[name], expected[name], prefix) for name in _without_echoes(changed, lost)),
    ]
    extra = [name for name in found if name not in expected and f"table {_table(name)}" in expected]
    if extra:
        findings.append(
            note("drift", f"not made by the migrations: {listed(extra)}", "remove it if nobody needs it: writes pay")
        )
    yield from findings or [ok("drift", f"{len(expected)} tables, columns, indexes and constraints are as made")]


_RESTORE = (
    "restore it from a backup; a new installation beside it shows how it was: `matrixsched init --installation new`"
)


def _kind(name: str) -> str:
    return name.partition(" ")[0]


def _table(name: str) -> str:
    return name.partition(" ")[2].partition(".")[0]


def _without_echoes(changed: Sequence[str], lost: Sequence[str]) -> list[str]:
    """On SQLite the text of a table differs, too, when a column of it does: told once."""
    told = {_table(name) for name in (*changed, *lost) if _kind(name) == "column"}
    return [name for name in changed if _kind(name) != "table" or _table(name) not in told]


def _lost(name: str, definition: str, prefix: str) -> Finding:
    if _kind(name) == "index" and definition.upper().startswith("CREATE"):
        return fault("drift", f"{name} is missing: statements read whole shards", f"`{_made(definition, prefix)};`")
    return fault("drift", f"{name} is missing (it was: {definition})", _RESTORE)


def _changed(name: str, found: str, expected: str, prefix: str) -> Finding:
    if found.removesuffix(INVALID).strip() == expected:
        index = name.rpartition(".")[2]
        return fault(
            "drift",
            f"{name} is invalid: it was not built to its end, and no statement uses it",
            f"`reindex index concurrently {prefix}{index};`",
        )
    return fault("drift", f"{name} is `{found}`, not `{expected}`", _RESTORE)


def _made(definition: str, prefix: str) -> str:
    """The statement that makes an index, in this installation: names are kept without their schema or prefix."""
    words = definition.split(" ")
    on = next(place for place, word in enumerate(words) if word.upper() == "ON")
    words[on + 1] = f"{prefix}{words[on + 1]}"
    if not prefix.endswith("."):
        words[on - 1] = f"{prefix}{words[on - 1]}"
    return " ".join(words)


def judge_privileges(facts: PostgresFacts) -> Iterator[Finding]:
    role = of_sql(facts.role)
    if facts.schema.exists and not facts.can_use_schema:
        yield fault(
            "privileges",
            f"the role {facts.role} may not use the schema {facts.namespace}",
            f"`grant usage on schema {facts.namespace} to {role};`",
        )
    lacking = {
        table.name: [one for one in table.lacking if table.name != _MIGRATIONS_ARE_READ or one == "SELECT"]
        for table in facts.tables
    }
    lacking = {name: privileges for name, privileges in lacking.items() if privileges}
    if lacking:
        told = listed([f"{name} ({', '.join(one.lower() for one in missing)})" for name, missing in lacking.items()])
        yield fault(
            "privileges",
            f"the role {facts.role} lacks privileges on {len(lacking)} of {len(facts.tables)} tables: {told}",
            f"`grant select, insert, update, delete on all tables in schema {facts.namespace} to {role};`",
        )
    elif facts.tables:
        yield ok("privileges", f"the role {facts.role} may read and write all {len(facts.tables)} tables")
