"""A process that is frozen inside of a transaction of our own, in distributed form: it holds users' rows for two
seconds at most. Callers' transactions are left as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from support.distributed import a_store
from support.drivers import connect_asyncpg
from support.scene import Scene, done

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.store.transition import Transaction, Transition
from matrixsched.store.values import Answer

pytestmark = pytest.mark.anyio

WRITES = ("schedule", "replace_expected", "reschedule", "cancel")
PATIENCE = timedelta(seconds=20)


@pytest.fixture
async def scene(postgres_dsn: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Scene]:
    async with a_store(postgres_dsn, clock) as store:
        yield Scene(store, clock)


@pytest.fixture
async def session(postgres_dsn: str, anyio_backend: str) -> AsyncIterator[asyncpg.Connection]:
    """Of the process that will be frozen."""
    session = await connect_asyncpg(postgres_dsn)
    yield session
    session.terminate()


def writing(scene: Scene, how: str, lock_timeout: timedelta | None) -> Transition[Any]:
    change = scene.change(at=scene.now)
    match how:
        case "schedule":
            batch = [scene.new(), scene.new("b", shard=1)]
            return scene.do.schedule(batch, uuid4(), replace=True, lock_timeout=lock_timeout, tell=False)
        case "replace_expected":
            return scene.do.replace_expected(scene.new(), uuid4(), uuid4(), lock_timeout=lock_timeout, tell=False)
        case "reschedule":
            return scene.do.reschedule(change, revive=False, lock_timeout=lock_timeout, tell=False)
        case _:
            return scene.do.cancel(change, lock_timeout=lock_timeout)


async def idle_while_writing(session: asyncpg.Connection, transition: Transition[Any]) -> set[str]:
    """How long the transaction may be idle before each of its statements that write."""
    said = set()

    async def ask(asked: Any) -> Any:
        if asked.statement.writes:
            said.add(await session.fetchval("show idle_in_transaction_session_timeout"))
        given = [asked.parameters[name] for name in asked.statement.parameters]
        return await session.fetch(asked.statement.positional, *given)

    async with session.transaction():
        await transition.converse_async(ask)
    return said


@pytest.mark.parametrize("how", WRITES)
async def test_a_write_of_our_own_is_ended_where_it_is_frozen(scene: Scene, session: asyncpg.Connection, how: str):
    await scene.schedule()
    transition = writing(scene, how, timedelta(seconds=1))
    assert isinstance(transition, Transaction)
    assert await idle_while_writing(session, transition) == {"2s"}
    assert await session.fetchval("show idle_in_transaction_session_timeout") == "0"


@pytest.mark.parametrize("how", WRITES)
async def test_a_callers_transaction_is_left_as_it_is(scene: Scene, session: asyncpg.Connection, how: str):
    await scene.schedule()
    assert await idle_while_writing(session, writing(scene, how, None)) == {"0"}


async def test_calls_in_a_callers_transaction_let_it_be_idle_as_long_as_it_was(
    scene: Scene, session: asyncpg.Connection, postgres_dsn: str
):
    async with App(postgres_dsn) as app, session.transaction():
        await session.execute("set local idle_in_transaction_session_timeout = '4321ms'")
        await app.schedule("anything", id="a", connection=session)
        await app.run_now("a", connection=session)
        await app.cancel("a", connection=session)
        assert await session.fetchval("show idle_in_transaction_session_timeout") == "4321ms"


@pytest.mark.slow
async def test_a_worker_that_is_frozen_between_the_outcomes_of_two_shards_lets_users_go_on(
    scene: Scene, session: asyncpg.Connection
):
    await scene.send([scene.new(f"in {shard}", shard=shard) for shard in (0, 1)])
    ended = [done(attempt) for _ in range(2) for attempt in await scene.sync()]
    conversation = scene.do.record(ended, history_max=5).begin()
    await session.execute("begin")
    ask, recorded = next(conversation), 0
    while not recorded:
        given = [ask.parameters[name] for name in ask.statement.parameters]
        rows = await session.fetch(ask.statement.positional, *given)
        recorded += ask.statement.name == "record"
        ask = conversation.send(rows)
    # It holds the action of the first shard, and says no more.
    assert (await scene.action("in 0")).status.last_outcome is None
    changing = scene.do.cancel(scene.change("in 0"), lock_timeout=PATIENCE)
    assert await scene.run(changing) is not None
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)):
        await session.execute("commit")
    assert await scene.record(*ended) == [Answer.SUPERSEDED, Answer.RECORDED]
