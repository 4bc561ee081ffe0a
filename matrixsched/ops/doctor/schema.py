"""The tables of an installation, compared with what the migrations of this library make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matrixsched.ops.doctor.words import listed, of_sql
from matrixsched.ops.findings import Finding, fault, note, ok, warning
from matrixsched.ops.remedies import INSTALLATION
from matrixsched.store.facts import Catalogue, PostgresFacts, SchemaFacts
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION, Migration
from matrixsched.store.statements import Dialect, namespace

INVALID = "(invalid)"
_MIGRATIONS_ARE_READ = "migrations"


def judge_schema(
    facts: SchemaFacts,
    *,
    dialect: Dialect,
    installation: str,
    expected: Catalogue,
    library: Sequence[Migration],
    options: str,
) -> Iterator[Finding]:
    """`options` make the commands that are suggested reach the same database."""
    if not facts.exists:
        is_said = installation == INSTALLATION or "--installation" in options.split()
        named = options if is_said else f"{options} --installation {installation}"
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
    yield from _version(facts, options)
    yield from _checksums(facts, library)
    if facts.version == LIBRARY_SCHEMA_VERSION:
        made = [statement for migration in library for statement in migration.statements]
        yield from _drift(
            facts.catalogue, expected, _Remedies(dialect, namespace(dialect, installation), made, options)
        )


def _version(facts: SchemaFacts, options: str) -> Iterator[Finding]:
    newest, version = LIBRARY_SCHEMA_VERSION, facts.version
    if version is None:
        yield fault("schema", "the version of the installation cannot be read", "see what is said of its privileges")
    elif version < newest:
        yield fault("schema", f"schema {version}, this library makes {newest}", f"`matrixsched upgrade{options}`")
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


def _drift(found: Catalogue, expected: Catalogue, remedies: _Remedies) -> Iterator[Finding]:
    lost = _without_parts([name for name in expected if name not in found], expected)
    changed = [name for name in expected if name in found and found[name] != expected[name]]
    if remedies.dialect == "sqlite":
        changed = _without_echoes(changed, lost)
    findings = [
        *(remedies.of_lost(name, expected[name]) for name in lost),
        *(remedies.of_changed(name, found[name], expected[name]) for name in changed),
    ]
    extra = [name for name in found if name not in expected and _is_of_ours(name, expected)]
    if extra:
        findings.append(
            note("drift", f"not made by the migrations: {listed(extra)}", "remove it if nobody needs it: writes pay")
        )
    yield from findings or [ok("drift", f"{len(expected)} tables, columns, indexes and constraints are as made")]


def _kind(name: str) -> str:
    return name.partition(" ")[0]


def _table(name: str) -> str:
    """The table, or view, that it is or is a part of."""
    return name.partition(" ")[2].partition(".")[0]


def _is_of_ours(name: str, expected: Catalogue) -> bool:
    return f"table {_table(name)}" in expected


def _without_parts(lost: Sequence[str], expected: Catalogue) -> list[str]:
    """Without what is gone because something else is: the parts of a table or view, and the index of a constraint."""
    whole = {_table(name) for name in lost if _kind(name) in ("table", "view")}
    constraints = {name.partition(" ")[2] for name in lost if _kind(name) == "constraint"}
    return [
        name
        for name in lost
        if _kind(name) in ("table", "view")
        or (_table(name) not in whole and not (_kind(name) == "index" and name.partition(" ")[2] in constraints))
    ]


def _without_echoes(changed: Sequence[str], lost: Sequence[str]) -> list[str]:
    """There the text of a table differs, too, when a column of it does: told once."""
    told = {_table(name) for name in (*changed, *lost) if _kind(name) == "column"}
    return [name for name in changed if _kind(name) != "table" or _table(name) not in told]


_NOT_NULL = " not null"
_DEFAULT = " default "


@dataclass(frozen=True, slots=True)
class _Remedies:
    """What to type where something is not as it was made; a backup is needed only where data are gone."""

    dialect: Dialect
    prefix: str
    made: Sequence[str]
    """What the migrations do, statement by statement."""
    options: str

    def of_lost(self, name: str, definition: str) -> Finding:
        missing = f"{name} is missing"
        match _kind(name):
            case "index" if definition.upper().startswith("CREATE"):
                return fault("drift", f"{missing}: statements read whole shards", f"`{self._index(definition)};`")
            case "constraint" if self.dialect == "postgresql":
                return fault("drift", f"{missing} (it was: {definition})", f"`{self._constraint(name, definition)}`")
            case "view" if (made := self._view(_table(name))) is not None:
                return fault("drift", f"{missing}, and whatever reads it fails; nothing of ours does", f"`{made};`")
            case "table" | "view":
                return fault("drift", missing, self._restore)
        return fault("drift", f"{missing} (it was: {definition})", self._restore)

    def of_changed(self, name: str, found: str, expected: str) -> Finding:
        if found.removesuffix(INVALID).strip() == expected:
            index = name.rpartition(".")[2]
            return fault(
                "drift",
                f"{name} is invalid: it was not built to its end, and no statement uses it",
                f"`reindex index concurrently {self.prefix}{index};`",
            )
        alter = self._alter(name, found, expected) if self.dialect == "postgresql" else None
        return fault(
            "drift", f"{name} is `{found}`, not `{expected}`", self._restore if alter is None else f"`{alter};`"
        )

    @property
    def _restore(self) -> str:
        return (
            "restore it from a backup; a new installation beside it shows how it was: "
            f"`matrixsched init{self.options} --installation new`"
        )

    def _index(self, definition: str) -> str:
        """The statement that makes it: names are kept without their schema or prefix. Nobody's writes wait for it."""
        words = definition.split(" ")
        on = next(place for place, word in enumerate(words) if word.upper() == "ON")
        words[on + 1] = f"{self.prefix}{words[on + 1]}"
        if not self.prefix.endswith("."):
            words[on - 1] = f"{self.prefix}{words[on - 1]}"
        if self.dialect == "postgresql":
            words.insert(on - 1, "CONCURRENTLY")
        return " ".join(words)

    def _constraint(self, name: str, definition: str) -> str:
        """Added without a look at the table under its lock, which comes after that."""
        table, _, own = name.partition(" ")[2].partition(".")
        of_table = f"alter table {self.prefix}{table}"
        kind, _, columns = definition.partition("(")
        if kind.strip() in ("PRIMARY KEY", "UNIQUE"):
            make = f"create unique index concurrently {own} on {self.prefix}{table} ({columns};"
            return f"{make} {of_table} add constraint {own} {kind.strip().lower()} using index {own};"
        add = f"{of_table} add constraint {own} {definition} not valid;"
        return f"{add} {of_table} validate constraint {own};"

    def _view(self, view: str) -> str | None:
        words = f"create view {self.prefix}{view} as "
        made = (" ".join(statement.split()) for statement in self.made)
        return next((statement for statement in made if statement.startswith(words)), None)

    def _alter(self, name: str, found: str, expected: str) -> str | None:
        """What makes it again what it was, where no row has to change for that."""
        of_table = f"alter table {self.prefix}{_table(name)}"
        if _kind(name) == "table":
            return f"{of_table} set logged" if (found, expected) == ("not logged", "logged") else None
        if _kind(name) != "column":
            return None
        (was, was_needed, was_default), (is_, is_needed, is_default) = _parts(found), _parts(expected)
        if was != is_:
            return None
        column = f"alter column {name.rpartition('.')[2]}"
        changes = []
        if was_default != is_default:
            changes.append(f"{column} set default {is_default}" if is_default else f"{column} drop default")
        if was_needed != is_needed:
            changes.append(f"{column} {'set' if is_needed else 'drop'} not null")
        return f"{of_table} {', '.join(changes)}"


def _parts(column: str) -> tuple[str, bool, str]:
    """Of a column: its type, whether it must have a value, and the one that it has if none is given."""
    bare, _, default = column.partition(_DEFAULT)
    return bare.replace(_NOT_NULL, ""), _NOT_NULL in bare, default


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
    yield from _row_security(facts)


def _row_security(facts: PostgresFacts) -> Iterator[Finding]:
    """It hides rows without an error, but for owners and superusers."""
    secured = [table for table in facts.tables if table.has_row_security]
    if not secured:
        return
    hidden = [table.name for table in secured if table.hides_rows]
    names = [table.name for table in secured]
    alter = " ".join(f"alter table {facts.namespace}.{of_sql(name)} disable row level security;" for name in names)
    if hidden:
        yield fault(
            "row security",
            f"row level security hides rows of {listed(hidden)} from the role {facts.role}, or refuses them: what is "
            "scheduled is not seen, or cannot be written",
            f"as their owner: `{alter}`",
        )
    else:
        yield warning(
            "row security",
            f"row level security is on for {listed(names)}: the role {facts.role} sees all rows, but other roles that "
            "work here may see none",
            f"as their owner: `{alter}`",
        )
