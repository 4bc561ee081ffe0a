"""Mutants that the database itself does not take: those are no mistakes that anybody could make."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, cast

import psycopg
from support.plans import filled_sqlite

from hunting.hot import Mutation


def refused_by_sqlite(mutations: Iterable[Mutation]) -> Iterator[tuple[Mutation, str]]:
    """Each with its reason."""
    with filled_sqlite("", analysed=False) as connection:
        for mutation in mutations:
            try:
                connection.execute(f"explain {mutation.text}", dict.fromkeys(mutation.mutated.parameters))
            except sqlite3.Error as error:
                yield mutation, str(error)


def refused_by_postgres(mutations: Iterable[Mutation], dsn: str) -> Iterator[tuple[Mutation, str]]:
    """Likewise; on a database with an installation."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for mutation in mutations:
            try:
                connection.execute(cast("Any", f"prepare mutant as {mutation.mutated.positional}"))
            except psycopg.Error as error:
                yield mutation, str(error)
            else:
                connection.execute("deallocate mutant")
