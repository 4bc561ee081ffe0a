"""Transitions inside a transaction that belongs to the caller: SQLAlchemy, synchronous or not, whatever its driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from matrixsched.errors import BadInput
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Ask, Row, Transition

T = TypeVar("T")

AsyncCaller = AsyncConnection | AsyncSession
SyncCaller = Connection | Session


async def run_in(caller: AsyncCaller, dialect: Dialect, transition: Transition[T]) -> T:
    """Carry out a transition in the caller's asynchronous transaction; committing stays the caller's business."""
    if not isinstance(caller, AsyncConnection | AsyncSession):
        raise BadInput(
            f"connection must be an AsyncConnection or AsyncSession, not {type(caller).__name__}; "
            "synchronous ones go with app.sync"
        )
    return await caller.run_sync(lambda inner: run_in_sync(inner, dialect, transition))


def run_in_sync(caller: SyncCaller, dialect: Dialect, transition: Transition[T]) -> T:
    """Carry out a transition in the caller's synchronous transaction."""
    if not isinstance(caller, Connection | Session):
        raise BadInput(f"connection must be a Connection or Session, not {type(caller).__name__}")
    connection = caller.connection() if isinstance(caller, Session) else caller
    if connection.dialect.name != dialect:
        raise BadInput(f"the connection speaks {connection.dialect.name}, this application's database is {dialect}")
    return transition.converse(lambda ask: _execute(connection, ask))


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
