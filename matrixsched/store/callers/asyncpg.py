"""asyncpg's own connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from matrixsched.store.callers.checks import check_dialect, check_transaction
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Ask, Row, Transition

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")


def is_async(caller: object) -> bool:
    return hasattr(caller, "is_in_transaction")  # a pool has everything else


async def run_in(caller: Connection, dialect: Dialect, transition: Transition[T]) -> T:
    check_dialect("postgresql", dialect)
    check_transaction(caller.is_in_transaction(), "use `async with connection.transaction():`")

    async def execute(ask: Ask) -> Sequence[Row]:
        rows: Sequence[Row] = await caller.fetch(
            ask.statement.positional, *[ask.parameters[name] for name in ask.statement.parameters]
        )
        return rows

    return await transition.converse_async(execute)
