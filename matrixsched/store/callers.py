"""Transitions inside a transaction that belongs to the caller: SQLAlchemy, synchronous or not, whatever its driver.

SQLAlchemy is imported at the first use: half of the time a command or a worker takes to start would be spent on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from matrixsched.errors import BadInput
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Ask, Row, Transition

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

T = TypeVar("T")

AsyncCaller: TypeAlias = "AsyncConnection | AsyncSession"
SyncCaller: TypeAlias = "Connection | Session"


async def run_in(caller: AsyncCaller, dialect: Dialect, transition: Transition[T]) -> T:
    """Carry out a transition in the caller's asynchronous transaction; committing stays the caller's business."""
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    if not isinstance(caller, AsyncConnection | AsyncSession):
        raise BadInput(
            f"connection must be an AsyncConnection or AsyncSession, not {type(caller).__name__}; "
            "synchronous ones go with app.sync"
        )
    return await caller.run_sync(lambda inner: run_in_sync(inner, dialect, transition))


def run_in_sync(caller: SyncCaller, dialect: Dialect, transition: Transition[T]) -> T:
    """Carry out a transition in the caller's synchronous transaction."""
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session

    if not isinstance(caller, Connection | Session):
        raise BadInput(f"connection must be a Connection or Session, not {type(caller).__name__}")
    connection = caller.connection() if isinstance(caller, Session) else caller
    if connection.dialect.name != dialect:
        raise BadInput(f"the connection speaks {connection.dialect.name}, this application's database is {dialect}")
    return transition.converse(lambda ask: _execute(connection, ask))


def _execute(connection: Connection, ask: Ask) -> Sequence[Row]:
    from sqlalchemy import text
    from sqlalchemy.exc import StatementError

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
