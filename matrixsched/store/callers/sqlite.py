"""sqlite3, and aiosqlite, which is the same in a thread."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from matrixsched.store.callers.checks import check_dialect, check_transaction
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Ask, Row, Transition

if TYPE_CHECKING:
    import aiosqlite

T = TypeVar("T")

_LEGACY = -1
"""sqlite3.LEGACY_TRANSACTION_CONTROL, which Python 3.11 has not and does."""


def is_async(caller: object) -> bool:
    return not is_sync(caller)


def is_sync(caller: object) -> bool:
    return isinstance(caller, sqlite3.Connection)


async def run_in(caller: aiosqlite.Connection, dialect: Dialect, transition: Transition[T]) -> T:
    _check(caller, dialect)
    async with caller.cursor() as cursor:
        cursor.row_factory = None

        async def execute(ask: Ask) -> Sequence[Row]:
            await cursor.execute(ask.statement.text, ask.parameters)
            return _rows(cursor.description, await cursor.fetchall())

        return await transition.converse_async(execute)


def run_in_sync(caller: sqlite3.Connection, dialect: Dialect, transition: Transition[T]) -> T:
    _check(caller, dialect)
    cursor = caller.cursor()
    cursor.row_factory = None

    def execute(ask: Ask) -> Sequence[Row]:
        cursor.execute(ask.statement.text, ask.parameters)
        return _rows(cursor.description, cursor.fetchall())

    try:
        return transition.converse(execute)
    finally:
        cursor.close()


def _check(caller: Any, dialect: Dialect) -> None:
    check_dialect("sqlite", dialect)
    check_transaction(caller.in_transaction or _begins_by_itself(caller), "execute `begin immediate` first")


def _begins_by_itself(caller: Any) -> bool:
    autocommit = caller.autocommit if sys.version_info >= (3, 12) and hasattr(caller, "autocommit") else _LEGACY
    return caller.isolation_level is not None if autocommit == _LEGACY else not autocommit


def _rows(description: Any, rows: Any) -> list[dict[str, Any]]:
    names = [column[0] for column in description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]
