"""SQLAlchemy's connections and sessions, whatever driver they are on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from matrixsched.store.callers.checks import check_dialect, check_transaction
from matrixsched.store.callers.sqlite import is_in_transaction
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Ask, Row, Transition

T = TypeVar("T")


def is_async(caller: object) -> bool:
    return isinstance(caller, AsyncConnection | AsyncSession)


def is_sync(caller: object) -> bool:
    return isinstance(caller, Connection | Session | scoped_session)


async def run_in(caller: AsyncConnection | AsyncSession, dialect: Dialect, transition: Transition[T]) -> T:
    return await caller.run_sync(lambda inner: run_in_sync(inner, dialect, transition))


def run_in_sync(caller: Connection | Session | scoped_session[Any], dialect: Dialect, transition: Transition[T]) -> T:
    connection = caller if isinstance(caller, Connection) else caller.connection()
    check_dialect(connection.dialect.name, dialect)
    check_transaction(_is_in_transaction(connection), "choose another isolation level than AUTOCOMMIT for it")
    return transition.converse(lambda ask: _execute(connection, ask))


def _is_in_transaction(connection: Connection) -> bool:
    """SQLAlchemy itself says so of every connection, also of one whose driver commits each statement."""
    if connection.dialect.name != "sqlite":
        return not connection._is_autocommit_isolation()
    if not connection.in_transaction():
        connection.begin()  # as the first statement would; programs that tell SQLite how to begin do so on that event
    return is_in_transaction(connection.connection.driver_connection)


def _execute(connection: Connection, ask: Ask) -> Sequence[Row]:
    parameters = {name: ask.parameters[name] for name in ask.statement.parameters}
    try:
        result = connection.execute(text(ask.statement.text), parameters)
    except StatementError as error:
        error.hide_parameters = True  # a payload must not end up in somebody's log
        raise
    if not result.returns_rows:
        return []
    rows: Sequence[Any] = result.mappings().all()
    return rows
