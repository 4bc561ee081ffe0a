"""The statements: text in sql/<dialect>/<name>.sql, rendered for one installation.

The files are written for the default installation, so that they can be read and pasted; for another the names of
schema or prefix are replaced. `{now}` is the time of the decision: the parameter :now where tests own the clock, the
database's `statement_timestamp()` otherwise (stable, so that it can be an index condition).

In the distributed form of an installation (PostgreSQL) a statement that writes is about one shard, and says so of every
table. Where its text is the same but for that:

- `{x.shard_id}`, or `{(select shard_id from x)}`, stands for the shard of the rows x and, in this form, for that of the
  statement, :shard_id;
- `{place}`, or `{x.place}`, for where a row lies, which in this form is told with its shard;
- `{place in x, y by a, b}` and `{p.place is x by a, b}` say that a row is one of x and y, or x: by where it lies, and
  in this form by its key, the shard and the columns a and b. Where a statement with an INSERT is carried out part by
  part, as by Citus, nothing is written by a place that was handed on: there `{place of x}` is a text, to be compared.

Where the text is another one, it is in sql/distributed/. `{now}` is always the parameter there, asked a moment before:
engines with several nodes let no function beside a write tell the time, but for a bare comparison. `and {in_time}` is
one: false in a statement that reaches the server so late that this time must not be used any more; without it in the
other form, whose time is that of the statement itself. `{takes_writes}` is whether the server takes writes, on
PostgreSQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from matrixsched.rules.names import check_installation

Dialect = Literal["postgresql", "sqlite"]

_NOW = {
    "postgresql": "coalesce(cast(:now as timestamptz), statement_timestamp())",
    "sqlite": ":now",
}
TAKES_WRITES = "not (pg_is_in_recovery() or cast(current_setting('default_transaction_read_only') as boolean))"
_GIVEN_NOW = "cast(:now as timestamptz)"
_IN_TIME = "(statement_timestamp() < cast(:late_at as timestamptz)) is not false"
_AND_IN_TIME = re.compile(r"\s+and \{in_time\}")
_LATER = re.compile(r"\{now\} ([+-]) (cast\(:\w+ as interval\)|interval '[^']*')")
_SHARD = re.compile(r"\{((?:\w+\.)?shard_id|\(select shard_id from \w+\))\}")
_PLACE = re.compile(r"\{(\w+\.)?place\}")
_PLACE_IN = re.compile(r"\{place in ([\w, ]+) by ([\w, ]+)\}")
_PLACE_OF = re.compile(r"\{place of (\w+)\}")
_PLACE_IS = re.compile(r"\{(\w+)\.place is (\w+) by ([\w, ]+)\}")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_WRITE = re.compile(r"\b(insert into|update|delete from)\b")
_COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, its parameters by name."""

    name: str
    text: str
    """With parameters as :name."""
    positional: str
    """With parameters as $1, $2, …, in the order of `parameters`."""
    parameters: tuple[str, ...]
    writes: bool


def namespace(dialect: Dialect, installation: str) -> str:
    """What stands before every table name of an installation: a schema on PostgreSQL, a prefix on SQLite."""
    check_installation(installation)
    name = "matrixsched" if installation == "default" else f"matrixsched_{installation}"
    return f"{name}." if dialect == "postgresql" else f"{name}_"


def render(dialect: Dialect, installation: str, text: str) -> str:
    """SQL written for the default installation, for another one."""
    return text.replace(namespace(dialect, "default"), namespace(dialect, installation))


def statement(dialect: Dialect, installation: str, name: str, text: str, *, is_distributed: bool = False) -> Statement:
    """Prepare SQL text as the files have it."""
    bare = _COMMENT.sub("", text).strip().rstrip(";")
    bare = _of_one_shard(bare) if is_distributed else _of_any_shard(bare).replace("{now}", _NOW[dialect])
    rendered = render(dialect, installation, bare)
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(rendered)))
    numbers = {parameter: f"${number}" for number, parameter in enumerate(parameters, start=1)}
    positional = _PARAMETER.sub(lambda found: numbers[found[1]], rendered)
    return Statement(name, rendered, positional, parameters, writes=_WRITE.search(rendered) is not None)


def _of_any_shard(text: str) -> str:
    text = _PLACE_IN.sub(lambda found: f"ctid = any (array({_selected('ctid', found[1])}))", text)
    text = _PLACE_OF.sub(r"\1.ctid", _PLACE_IS.sub(r"\1.ctid = \2.ctid", text))
    return _PLACE.sub(r"\1ctid", _SHARD.sub(r"\1", _AND_IN_TIME.sub("", text)))


def _of_one_shard(text: str) -> str:
    shard = "cast(:shard_id as integer)"
    # Of days of 24 hours, whatever the zone of a session: so nothing that is called here is less than immutable.
    later = _LATER.sub(r"(({now} at time zone 'UTC' \1 \2) at time zone 'UTC')", text)
    text = later.replace("{now}", _GIVEN_NOW).replace("{in_time}", _IN_TIME).replace("{takes_writes}", TAKES_WRITES)
    text = _PLACE_IN.sub(
        lambda found: f"shard_id = {shard} and ({found[2]}) in ({_selected(found[2], found[1])})", text
    )
    text = _PLACE_OF.sub(r"cast(\1.ctid as text)", text)
    text = _PLACE_IS.sub(
        lambda found: " and ".join(
            [f"{found[1]}.shard_id = {shard}", *(f"{found[1]}.{one} = {found[2]}.{one}" for one in _listed(found[3]))]
        ),
        text,
    )
    return _PLACE.sub(rf"\1shard_id = {shard} and \1ctid", _SHARD.sub(shard, text))


def _selected(columns: str, parts: str) -> str:
    return " union all ".join(f"select {columns} from {part}" for part in _listed(parts))  # noqa: S608


def _listed(names: str) -> list[str]:
    return names.split(", ")


@cache
def pyformat(statement: Statement) -> str:
    """The text with parameters as %(name)s, as psycopg takes it; a percent sign of its own is written twice then."""
    return _PARAMETER.sub(r"%(\1)s", statement.text.replace("%", "%%"))


@cache
def load(dialect: Dialect, installation: str) -> dict[str, Statement]:
    """All statements of a dialect by name. A file may hold several, each begun by a line `-- name: part`."""
    return {
        name: statement(dialect, installation, name, text)
        for file in _files(dialect).values()
        for name, text in file.items()
    }


@cache
def load_distributed(installation: str) -> dict[str, Statement]:
    """All statements of an installation in distributed form, by name: those that have texts of their own stand in the
    place of those of PostgreSQL of the same names, or of the one that their file is named after."""
    whole, own = _files("postgresql"), _files("distributed")
    texts = {name: text for file in whole.values() for name, text in file.items() if name not in own}
    texts |= {name: text for file in own.values() for name, text in file.items()}
    return {
        name: statement("postgresql", installation, name, text, is_distributed=True) for name, text in texts.items()
    }


def _files(folder: str) -> dict[str, dict[str, str]]:
    """The texts of the statements in each file of a folder, by the file and by name."""
    found: dict[str, dict[str, str]] = {}
    for file in files("matrixsched.store").joinpath(f"sql/{folder}").iterdir():
        stem, _, suffix = file.name.partition(".")
        if suffix == "sql":
            parts = _parts(file.read_text("utf-8"))
            found[stem] = {f"{stem}.{part}" if part else stem: text for part, text in parts}
    return found


def _parts(text: str) -> list[tuple[str, str]]:
    pieces = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    named = list(zip(pieces[1::2], pieces[2::2], strict=True))
    return named or [("", text)]
