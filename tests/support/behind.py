"""Into the database behind the store's back."""

from __future__ import annotations

import re

from sqlalchemy import Engine, text

from support import drivers


def engine_of(url: str) -> Engine:
    return drivers.engine(url, "psycopg" if url.startswith("postgresql") else "pysqlite")


def table(engine: Engine, name: str) -> str:
    return f"matrixsched.{name}" if engine.dialect.name == "postgresql" else f"matrixsched_{name}"


def change(engine: Engine, statement: str, **parameters: object) -> None:
    """`{name}` in the statement is the table of that name."""
    named = re.sub(r"{(\w+)}", lambda found: table(engine, found[1]), statement)
    with engine.begin() as connection:
        connection.execute(text(named), parameters)
