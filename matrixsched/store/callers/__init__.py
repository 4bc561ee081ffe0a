"""Transitions inside a transaction that belongs to the caller, on the connection that the caller has already.

    sqlalchemy   Connection and Session (scoped, too), AsyncConnection and AsyncSession, whatever their driver
    django       django.db.connection, with psycopg 3 or sqlite3 below it
    psycopg      Connection and AsyncConnection of psycopg 3
    sqlite       sqlite3.Connection and aiosqlite.Connection
    asyncpg      asyncpg.Connection, also one that a pool lent

Committing stays the caller's business. A connection on which no transaction is open, and which opens none by itself, is
refused: there would be nothing that the action could be part of, and on SQLite its rows would be written one by one.

None of these libraries is imported before somebody hands us a connection of it: SQLAlchemy alone would take half of the
time in which a command or a worker starts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from matrixsched.errors import BadInput
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Transition

if TYPE_CHECKING:
    import sqlite3

    import aiosqlite
    import asyncpg
    import psycopg
    from asyncpg.pool import PoolConnectionProxy
    from django.db.backends.base.base import BaseDatabaseWrapper
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session, scoped_session

T = TypeVar("T")

AsyncCaller: TypeAlias = (
    "AsyncConnection | AsyncSession | psycopg.AsyncConnection[Any] | asyncpg.Connection | PoolConnectionProxy"
    " | aiosqlite.Connection"
)
SyncCaller: TypeAlias = (
    "Connection | Session | scoped_session[Any] | BaseDatabaseWrapper | psycopg.Connection[Any] | sqlite3.Connection"
)

_ASYNC = {"sqlalchemy": "sqlalchemy", "psycopg": "psycopg", "asyncpg": "asyncpg", "aiosqlite": "sqlite"}
_SYNC = {"sqlalchemy": "sqlalchemy", "psycopg": "psycopg", "django": "django", "sqlite3": "sqlite"}


async def run_in(caller: AsyncCaller, dialect: Dialect, transition: Transition[T]) -> T:
    """Carry out a transition in the caller's asynchronous transaction."""
    adapter = _adapter(_ASYNC, caller)
    if adapter is None:
        raise BadInput(
            "connection must be an AsyncConnection or AsyncSession of SQLAlchemy, an AsyncConnection of psycopg, "
            f"or a Connection of asyncpg or aiosqlite, not {_kind(caller)}; synchronous ones go with app.sync"
        )
    answer: T = await adapter.run_in(caller, dialect, transition)
    return answer


def run_in_sync(caller: SyncCaller, dialect: Dialect, transition: Transition[T]) -> T:
    """Carry out a transition in the caller's synchronous transaction."""
    adapter = _adapter(_SYNC, caller)
    if adapter is None:
        raise BadInput(
            "connection must be a Connection or Session of SQLAlchemy, a connection of Django, or a Connection of "
            f"psycopg or sqlite3, not {_kind(caller)}; asynchronous ones go with the calls of the App itself"
        )
    answer: T = adapter.run_in_sync(caller, dialect, transition)
    return answer


def _adapter(adapters: dict[str, str], caller: object) -> Any:
    """The module for such a connection, told by the library that it, or what it is made from, comes from."""
    for kind in type(caller).__mro__:
        if name := adapters.get(kind.__module__.partition(".")[0]):
            adapter = import_module(f"{__name__}.{name}")
            takes = adapter.is_async if adapters is _ASYNC else adapter.is_sync
            return adapter if takes(caller) else None
    return None


def _kind(caller: object) -> str:
    kind = type(caller)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}'s {kind.__name__}"
