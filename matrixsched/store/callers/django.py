"""Django's connections: `django.db.connection`, `django.db.connections[alias]`.

Inside `transaction.atomic()` the action is part of that block, savepoints included. Outside, where Django commits each
statement by itself, each call is a transaction of its own.

Statements pass Django's cursors by, which keep what they execute, parameters included, in `connection.queries` and in
the debug log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import transaction

from matrixsched.errors import BadInput
from matrixsched.store.callers.checks import check_dialect
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Transition

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")


def is_sync(caller: object) -> bool:
    return hasattr(caller, "in_atomic_block") and hasattr(caller, "vendor")  # a proxy is of no class of connections


def run_in_sync(caller: BaseDatabaseWrapper, dialect: Dialect, transition: Transition[T]) -> T:
    check_dialect(caller.vendor, dialect)
    caller.validate_thread_sharing()
    if not caller.in_atomic_block and caller.get_autocommit():
        with transaction.atomic(using=caller.alias):
            return _run(caller, dialect, transition)
    return _run(caller, dialect, transition)


def _run(caller: BaseDatabaseWrapper, dialect: Dialect, transition: Transition[T]) -> T:
    caller.validate_no_broken_transaction()
    caller.ensure_connection()
    with caller.wrap_database_errors:
        return _driver(dialect)(caller.connection, dialect, transition)


def _driver(dialect: Dialect) -> Callable[[Any, Dialect, Transition[T]], T]:
    if dialect == "sqlite":
        from matrixsched.store.callers.sqlite import run_in_sync as run_in_sqlite

        return run_in_sqlite
    try:
        from matrixsched.store.callers.psycopg import run_in_sync as run_in_psycopg
    except ImportError:
        raise BadInput("Django is on psycopg2 here, and we speak psycopg 3: install psycopg[binary]") from None
    return run_in_psycopg
