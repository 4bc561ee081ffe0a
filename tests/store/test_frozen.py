"""A process that is frozen inside of a transaction of our own, or cut off without a word: what it has locked others
have again after two seconds. Callers' transactions are left as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from inspect import Parameter, signature
from typing import Any
from uuid import uuid4

import anyio
import asyncpg
import pytest
from support.distributed import a_store
from support.drivers import connect_asyncpg, connect_psycopg
from support.scene import SHARDS, Scene, done

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.rules.action import Claim
from matrixsched.rules.queues import NewItem
from matrixsched.store.opening import open_store
from matrixsched.store.postgresql.connection import Connection
from matrixsched.store.queues import PUT_TASKS_MAX
from matrixsched.store.statements import statement
from matrixsched.store.store import Store
from matrixsched.store.transition import Ask, Composed, Conversation, Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Answer, Ended

pytestmark = pytest.mark.anyio

WRITES = ("schedule", "replace_expected", "reschedule", "cancel")
PATIENCE = timedelta(seconds=20)
BOUND = "2s"
OF_A_NEW_DEFAULT = pytest.mark.direct("sessions of the pool were begun before the default was another")
FORMS = pytest.mark.parametrize("distributed", [False, True], ids=["usual", "distributed"])


# Every transition of the protocol, and how long it may be idle.


PROTOCOL = [name for name in dir(Transitions) if not name.startswith("_")]
ITEM = NewItem(queue=0, data=b"")
ARGUMENTS: dict[str, Any] = {
    "ended": [Ended(Claim(shard, "a", uuid4(), 1, uuid4()), None) for shard in (0, 1)],  # type: ignore[arg-type]
    "items": [ITEM] * (PUT_TASKS_MAX + 1),
}
"""Of what is looked at before anything is asked: as much as makes it one transaction."""

IN_ANY_FORM = {
    *("balance", "change_queue_settings", "claim_gated", "pause_template", "plan_window", "put_tasks", "put_template"),
    *("record_deliveries", "remove_limit", "remove_template", "resume_limit", "resume_template", "set_limit"),
    *("set_quota_settings", "slow_down", "update_semaphore"),
}
IN_DISTRIBUTED_FORM = {*WRITES, "record", "relist_lanes", "a call"}

LOOK = statement(
    "postgresql",
    "default",
    "look",
    "select current_setting('idle_in_transaction_session_timeout') as idle, pg_current_xact_id()::text as id",
)


def nothing_but_looks(transition: Transition[Any]) -> Transition[tuple[bool, str]]:
    """Carried out as that one; whether it is one transaction, and how long that may be idle before its first lock."""

    def looking() -> Conversation[tuple[bool, str]]:
        first, again = (yield Ask(LOOK, {}))[0], (yield Ask(LOOK, {}))[0]
        return first["id"] == again["id"], first["idle"]

    return replace(transition, begin=looking)


def made(do: Transitions, name: str) -> Transition[Any]:
    """It is not begun, so nearly all that it is about may be missing."""
    wanted = list(signature(getattr(Transitions, name)).parameters.values())[1:]
    given = [ARGUMENTS.get(one.name) for one in wanted if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    named = {one.name: None for one in wanted if one.kind is Parameter.KEYWORD_ONLY}
    transition: Transition[Any] = getattr(do, name)(*given, **named)
    return transition


async def looked_at(store: Store) -> dict[str, tuple[bool, str]]:
    every = {name: made(store.transitions, name) for name in PROTOCOL}
    every["a call"] = Composed("a call", every["schedule"].begin)
    return {name: await store.run(nothing_but_looks(one)) for name, one in every.items()}


@FORMS
async def test_every_transaction_is_bounded_before_its_first_lock(postgres_dsn: str, distributed: bool):
    async with a_store(postgres_dsn, None, distributed=distributed) as store:
        found = await looked_at(store)
    assert {name: idle for name, (is_one, idle) in found.items() if is_one != (idle == BOUND)} == {}
    assert {name for name, (is_one, _) in found.items() if is_one} >= IN_ANY_FORM
    assert not distributed or {name for name, (is_one, _) in found.items() if is_one} >= IN_DISTRIBUTED_FORM


@FORMS
@OF_A_NEW_DEFAULT
async def test_every_transition_is_bounded_where_the_default_isolation_makes_it_a_transaction(
    postgres_dsn: str, distributed: bool
):
    make_serializable(postgres_dsn)
    async with a_store(postgres_dsn, None, distributed=distributed) as store:
        assert set((await looked_at(store)).values()) == {(True, BOUND)}


def make_serializable(dsn: str) -> None:
    with connect_psycopg(dsn, autocommit=True) as connection:
        connection.execute(
            "do $$ begin execute format('alter database %I set default_transaction_isolation = ''serializable''', "
            "current_database()); end $$"
        )


# Frozen in the middle.


@pytest.fixture
async def frozen(monkeypatch: pytest.MonkeyPatch, anyio_backend: str) -> AsyncIterator[Callable[..., Any]]:
    """Carries out a transition on a store of its own up to the statement of that name, and says no more then."""
    usual, tasks, stores = Connection.ask, list[asyncio.Task[Any]](), list[Store]()

    async def freeze(dsn: str, transition: Transition[Any], after: str) -> None:
        is_frozen, theirs = anyio.Event(), open_store(dsn)
        stores.append(theirs)
        await theirs.open()

        async def ask(self: Connection, asked: Ask) -> Sequence[Any]:
            rows = await usual(self, asked)
            if asked.statement.name == after and not is_frozen.is_set():
                is_frozen.set()
                await anyio.sleep_forever()
            return rows

        monkeypatch.setattr(Connection, "ask", ask)
        tasks.append(asyncio.create_task(theirs.run(transition)))
        with anyio.fail_after(20):
            await is_frozen.wait()

    yield freeze
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for store in stores:
        await store.close()


CASES = {
    "deliveries": ("record_deliveries", False),
    "deliveries, distributed": ("record_deliveries", True),
    "outcomes of two shards": ("record", True),
    "outcomes, serializable": ("record", False),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=OF_A_NEW_DEFAULT if "serializable" in case else ()) for case in CASES]
)
async def test_who_is_frozen_with_outcomes_lets_users_go_on(postgres_dsn: str, case: str, frozen: Any):
    how, distributed = CASES[case]
    if "serializable" in case:
        make_serializable(postgres_dsn)
    clock = ManualClock()
    async with a_store(postgres_dsn, clock, distributed=distributed) as store:
        scene = Scene(store, clock)
        await scene.send([scene.new(f"in {shard}", shard=shard) for shard in (0, 1)])
        ended = [done(attempt) for _ in range(2) for attempt in await scene.sync()]
        await frozen(postgres_dsn, getattr(store.transitions, how)(ended, history_max=5), "record")
        # It holds the action of the first shard, and says no more.
        assert (await scene.action("in 0")).status.last_outcome is None
        assert await scene.run(scene.do.cancel(scene.change("in 0"), lock_timeout=PATIENCE)) is not None
        assert await scene.record(*ended) == [Answer.SUPERSEDED, Answer.RECORDED]


@pytest.mark.slow
async def test_who_is_frozen_while_lanes_are_listed_loses_the_turn(postgres_dsn: str, frozen: Any):
    async with a_store(postgres_dsn, None) as store:
        relisting = store.transitions.relist_lanes(every=timedelta(0))
        await frozen(postgres_dsn, relisting, "relist_lanes.turn")
        assert await store.run(relisting) is None
        with anyio.fail_after(20):
            while await store.run(relisting) is None:
                pass  # the server has yet to end it


# In transactions of callers nothing is said of it.


@pytest.fixture
async def session(postgres_dsn: str, anyio_backend: str) -> AsyncIterator[asyncpg.Connection]:
    session = await connect_asyncpg(postgres_dsn)
    yield session
    session.terminate()


def writing(scene: Scene, how: str) -> Transition[Any]:
    change = scene.change(at=scene.now)
    match how:
        case "schedule":
            batch = [scene.new(), scene.new("b", shard=1)]
            return scene.do.schedule(batch, uuid4(), replace=True, lock_timeout=None, tell=False)
        case "replace_expected":
            return scene.do.replace_expected(scene.new(), uuid4(), uuid4(), lock_timeout=None, tell=False)
        case "reschedule":
            return scene.do.reschedule(change, revive=False, lock_timeout=None, tell=False)
        case _:
            return scene.do.cancel(change, lock_timeout=None)


@FORMS
@pytest.mark.parametrize("how", WRITES)
async def test_a_callers_transaction_is_left_as_it_is(
    postgres_dsn: str, session: asyncpg.Connection, how: str, distributed: bool
):
    async def ask(asked: Ask) -> Any:
        given = [asked.parameters[name] for name in asked.statement.parameters]
        return await session.fetch(asked.statement.positional, *given)

    clock = ManualClock()
    async with a_store(postgres_dsn, clock, distributed=distributed) as store:
        scene = Scene(store, clock)
        await scene.schedule()
        async with session.transaction():
            before = await session.fetchval("show idle_in_transaction_session_timeout")
            await writing(scene, how).converse_async(ask)
            assert await session.fetchval("show idle_in_transaction_session_timeout") == before


@FORMS
async def test_calls_in_a_callers_transaction_let_it_be_idle_as_long_as_it_was(
    postgres_dsn: str, session: asyncpg.Connection, distributed: bool
):
    await App(postgres_dsn).init(shards=SHARDS, distributed=distributed)
    async with App(postgres_dsn) as app, session.transaction():
        await session.execute("set local idle_in_transaction_session_timeout = '4321ms'")
        await app.schedule("anything", id="a", connection=session)
        await app.run_now("a", connection=session)
        await app.cancel("a", connection=session)
        assert await session.fetchval("show idle_in_transaction_session_timeout") == "4321ms"
