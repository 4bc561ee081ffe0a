"""psycopg 3, synchronous and asynchronous.

Statements go through a cursor of our own, for the caller's connection may have other ideas of rows, of binding
parameters and of timestamps: Django's replaces the time zone of what it reads, or cuts it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.datetime import TimestamptzBinaryLoader, TimestamptzLoader

from matrixsched.store.callers.checks import check_dialect, check_transaction
from matrixsched.store.statements import Dialect, pyformat
from matrixsched.store.transition import Ask, Row, Transition

T = TypeVar("T")


def is_async(caller: object) -> bool:
    return isinstance(caller, AsyncConnection)


def is_sync(caller: object) -> bool:
    return isinstance(caller, Connection)


async def run_in(caller: AsyncConnection[Any], dialect: Dialect, transition: Transition[T]) -> T:
    _check(caller, dialect)
    async with AsyncCursor(caller, row_factory=dict_row) as cursor:
        _read_timestamps_aware(cursor)

        async def execute(ask: Ask) -> Sequence[Row]:
            await cursor.execute(pyformat(ask.statement), ask.parameters, prepare=False)
            return await cursor.fetchall()

        return await transition.converse_async(execute)


def run_in_sync(caller: Connection[Any], dialect: Dialect, transition: Transition[T]) -> T:
    _check(caller, dialect)
    with Cursor(caller, row_factory=dict_row) as cursor:
        _read_timestamps_aware(cursor)

        def execute(ask: Ask) -> Sequence[Row]:
            cursor.execute(pyformat(ask.statement), ask.parameters, prepare=False)
            return cursor.fetchall()

        return transition.converse(execute)


def _check(caller: Connection[Any] | AsyncConnection[Any], dialect: Dialect) -> None:
    check_dialect("postgresql", dialect)
    is_idle = caller.info.transaction_status is TransactionStatus.IDLE
    check_transaction(not (caller.autocommit and is_idle), "use `with connection.transaction():`")


def _read_timestamps_aware(cursor: Cursor[Any] | AsyncCursor[Any]) -> None:
    for loader in (TimestamptzLoader, TimestamptzBinaryLoader):
        cursor.adapters.register_loader("timestamptz", loader)
