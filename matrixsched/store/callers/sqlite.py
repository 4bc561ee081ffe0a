"""sqlite3, and aiosqlite, which is the same in a thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from matrixsched.store.callers.checks import check_dialect, check_transaction
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Ask, Row, Transition

if TYPE_CHECKING:
    import aiosqlite

T = TypeVar("T")

_BEGIN = "execute `begin immediate` first"
_LEGACY = -1
"""sqlite3.LEGACY_TRANSACTION_CONTROL, which Python 3.11 has not and does."""


def is_async(caller: object) -> bool:
    return not is_sync(caller)


def is_sync(caller: object) -> bool:
    return isinstance(caller, sqlite3.Connection)


async def run_in(caller: aiosqlite.Connection, dialect: Dialect, transition: Transition[T]) -> T:
    check_dialect("sqlite", dialect)
    # In its thread: nowhere else does the newer of the two settings answer, which aiosqlite itself does not show.
    begins: bool = await caller._execute(_begins_by_itself, caller._conn)  # type: ignore[no-untyped-call]
    check_transaction(caller.in_transaction or begins, _BEGIN)
    async with caller.cursor() as cursor:
        cursor.row_factory = None

        async def execute(ask: Ask) -> Sequence[Row]:
            await cursor.execute(ask.statement.text, ask.parameters)
            return _rows(cursor.description, await cursor.fetchall())

        return await transition.converse_async(execute)


def run_in_sync(caller: sqlite3.Connection, dialect: Dialect, transition: Transition[T]) -> T:
    check_dialect("sqlite", dialect)
    check_transaction(is_in_transaction(caller), _BEGIN)
    cursor = caller.cursor()
    cursor.row_factory = None

    def execute(ask: Ask) -> Sequence[Row]:
        cursor.execute(ask.statement.text, ask.parameters)
        return _rows(cursor.description, cursor.fetchall())

    try:
        return transition.converse(execute)
    finally:
        cursor.close()


def is_in_transaction(caller: Any) -> bool:
    """Whether what is written is part of a transaction: one that is open, or one that the driver opens by itself."""
    if caller.in_transaction:
        return True
    return _begins_by_itself(caller) if is_sync(caller) else caller.isolation_level is not None


def _begins_by_itself(caller: Any) -> bool:
    autocommit = getattr(caller, "autocommit", _LEGACY)
    return caller.isolation_level is not None if autocommit == _LEGACY else not autocommit


def _rows(description: Any, rows: Any) -> list[dict[str, Any]]:
    names = [column[0] for column in description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]
