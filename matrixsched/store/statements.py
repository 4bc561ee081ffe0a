"""The statements: text in sql/<dialect>/<name>.sql, rendered for one installation.

The files are written for the default installation, so that they can be read and pasted; for another the names of
schema or prefix are replaced. `{now}` is the time of the decision: the parameter :now where tests own the clock, the
database's `statement_timestamp()` otherwise (stable, so that it can be an index condition).
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


def statement(dialect: Dialect, installation: str, name: str, text: str) -> Statement:
    """Prepare SQL text as the files have it."""
    bare = _COMMENT.sub("", text).replace("{now}", _NOW[dialect]).strip().rstrip(";")
    rendered = render(dialect, installation, bare)
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(rendered)))
    numbers = {parameter: f"${number}" for number, parameter in enumerate(parameters, start=1)}
    positional = _PARAMETER.sub(lambda found: numbers[found[1]], rendered)
    return Statement(name, rendered, positional, parameters, writes=_WRITE.search(rendered) is not None)


@cache
def pyformat(statement: Statement) -> str:
    """The text with parameters as %(name)s, as psycopg takes it; a percent sign of its own is written twice then."""
    return _PARAMETER.sub(r"%(\1)s", statement.text.replace("%", "%%"))


@cache
def load(dialect: Dialect, installation: str) -> dict[str, Statement]:
    """All statements of a dialect by name. A file may hold several, each begun by a line `-- name: part`."""
    found: dict[str, Statement] = {}
    for file in files("matrixsched.store").joinpath(f"sql/{dialect}").iterdir():
        stem, _, suffix = file.name.partition(".")
        if suffix != "sql":
            continue
        for part, text in _parts(file.read_text("utf-8")):
            name = f"{stem}.{part}" if part else stem
            found[name] = statement(dialect, installation, name, text)
    return found


def _parts(text: str) -> list[tuple[str, str]]:
    pieces = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    named = list(zip(pieces[1::2], pieces[2::2], strict=True))
    return named or [("", text)]
