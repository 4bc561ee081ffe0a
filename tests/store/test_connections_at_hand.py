"""Connections that are kept at hand: who gets them, and when they end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import psycopg
import pytest

from matrixsched.errors import DatabaseError
from matrixsched.store.postgresql import at_hand
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.statements import statement
from matrixsched.store.transition import Ask, Conversation, Transition

pytestmark = [pytest.mark.anyio, pytest.mark.installed, pytest.mark.direct("sessions of the server are counted")]

DEADLINE_S = 10
BACKEND = statement("postgresql", "default", "backend", "select pg_backend_pid() as pid")


@pytest.fixture
async def store(postgres_dsn: str, anyio_backend: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_dsn, "default", connections=2)
    await store.open()
    yield store
    await store.close()


async def at_once(store: PostgresStore, count: int) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(store.run, store.transitions.now())


async def test_as_many_as_need_one_are_served_and_none_stays_in_use(store: PostgresStore) -> None:
    await at_once(store, 20)
    assert (store.pool.open, store.pool.in_use, store.pool.waiting, store.pool.served) == (2, 0, 0, 20)


async def test_whoever_has_a_statement_planned_is_asked_again(store: PostgresStore) -> None:
    await at_once(store, 2)  # now both are connected
    where: dict[str, set[int]] = {"a": set(), "b": set()}

    async def ask(name: str) -> None:
        where[name].add(await store.run(Transition(name, backend)))

    async with anyio.create_task_group() as group:
        for name in where:
            group.start_soon(ask, name)
    for name in "abbaab":
        await ask(name)
    assert [len(one) for one in where.values()] == [1, 1]
    assert where["a"] != where["b"]


def backend() -> Conversation[int]:
    """The process of the server that answers."""
    (row,) = yield Ask(BACKEND, {})
    pid: int = row["pid"]
    return pid


async def test_one_that_the_server_ended_is_not_handed_out(store: PostgresStore, postgres_dsn: str) -> None:
    await at_once(store, 2)
    with psycopg.connect(postgres_dsn, autocommit=True) as other:
        other.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'matrixsched'")
    with anyio.fail_after(DEADLINE_S):
        while store.pool.open:  # until we have heard of it
            await anyio.lowlevel.checkpoint()
    assert store.pool.in_use == 0
    await at_once(store, 4)


async def test_one_that_nobody_needs_for_long_is_ended(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_hand, "AT_HAND_S", 0.0)
    await at_once(store, 1)
    with anyio.fail_after(DEADLINE_S):
        while store.pool.open:
            await anyio.lowlevel.checkpoint()


async def test_one_that_was_left_in_a_transaction_is_not_kept(store: PostgresStore, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as other:
        other.execute("lock table matrixsched.migrations in exclusive mode")
        async with anyio.create_task_group() as upgrading:
            upgrading.start_soon(store.upgrade, 4)
            with anyio.fail_after(DEADLINE_S):
                while not other.execute("select from pg_locks where not granted").fetchall():
                    await anyio.lowlevel.checkpoint()
            upgrading.cancel_scope.cancel()
    await at_once(store, 2)


async def test_what_is_not_prepared_anew_was_not_done(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the plans cannot be renewed, nothing was sent: that is told as a database that is not there."""
    await at_once(store, 1)

    async def lost(*_: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr("matrixsched.store.postgresql.connection.Connection.renew_plans", lost)
    with pytest.raises(DatabaseError, match="cannot connect"):
        await store.run(store.transitions.now())
    monkeypatch.undo()
    await at_once(store, 2)
