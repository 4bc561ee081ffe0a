"""What users write, sent twice, in bulk, under locks, and while old actions are pruned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

import anyio
import asyncpg
import pytest
from support.interleaving import DEADLINE_S, HANDLER, LEASE, Mutant, Session, Taken, UnderWay, World, an_action, cured

from matrixsched import App, State
from matrixsched.clock import ManualClock
from matrixsched.errors import DatabaseBusy, OutcomeUnknown
from matrixsched.scheduler_policy import SchedulerPolicy
from matrixsched.store.opening import open_store
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.transition import Transition

pytestmark = pytest.mark.anyio

T = TypeVar("T")

NO_REQUEST = Mutant("schedule", "where g.request_guid in (select request_guid from request)", "")
NO_GUID_TEST = Mutant("schedule", "and s.action_guid <> excluded.action_guid", "")
NO_ORDER = Mutant("schedule", "order by shard_id, action_id", "")
NO_LOCK_TIMEOUT = Mutant("schedule", "where cast(:lock_timeout as text) is not null", "where false")
PRUNE_BY_SUBSELECT = (
    Mutant("prune_actions", "for update skip locked", ""),
    Mutant(
        "prune_actions",
        "where ctid = any (array(select ctid from old))",
        "where (shard_id, action_id) in (select shard_id, action_id from old)",
    ),
)


async def run_once(world: World) -> int:
    """Run everything that is due; how many attempts were made."""
    world.clock.advance(LEASE * 2)
    acquired = await world.run(world.acquiring(guid := uuid4()))
    if acquired.shard is None:
        return 0
    attempts = await world.take(guid)
    await world.run(world.recording(*attempts.values()))
    await world.release(guid)
    return len(attempts)


# A request sent again.


@cured(no_request_row_and_no_guid_test=[NO_REQUEST, NO_GUID_TEST])
@pytest.mark.parametrize("reached", ["incoming", "processing", "done"])
async def test_a_schedule_sent_again_is_carried_out_once(
    world: World, reached: str, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    later = world.now + timedelta(minutes=1)
    sending = world.scheduling(world.an_action(at=later if reached == "processing" else None), request=uuid4())
    assert len(await world.run(sending)) == 1
    world.clock.advance(timedelta(seconds=1))
    runs = 0 if reached == "incoming" else await run_once(world)
    assert len(await world.run(sending)) == (1 if taken_out else 0)
    if taken_out:
        assert await world.live_without_exactly_one_row() == ({} if reached == "done" else {"a": 2})
    world.clock.advance(timedelta(minutes=1))
    for _ in range(3):
        runs += await run_once(world)
    # A second row in incoming beside the first is moved with it, and the key of processing keeps one of them.
    assert runs == (2 if taken_out and reached == "done" else 1)


@cured(no_request_row=[NO_REQUEST])
async def test_a_schedule_sent_again_does_not_undo_a_newer_one(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    first, newer = world.an_action(), world.an_action()
    sending = world.scheduling(first, request=uuid4())
    await world.run(sending)
    await world.run(world.scheduling(newer))
    world.clock.advance(timedelta(seconds=1))
    await world.run(sending)
    (row,) = await world.rows("select action_guid from matrixsched.scheduled_actions")
    assert row["action_guid"] == (first.guid if taken_out else newer.guid)
    world.wrong = {"a": 2} if taken_out else {}


@cured(no_request_row_and_no_guid_test=[NO_REQUEST, NO_GUID_TEST])
async def test_a_schedule_sent_again_while_the_first_is_under_way_waits_and_writes_nothing(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    sending = world.scheduling(world.an_action(), request=uuid4())
    first, _ = await world.open(sending)
    world.clock.advance(timedelta(seconds=1))
    twin = await world.start(sending)
    await twin.waits()
    await first.commit()
    assert len(await twin.outcome()) == (1 if taken_out else 0)
    world.wrong = {"a": 2} if taken_out else {}


@cured(no_guid_test=[NO_GUID_TEST])
async def test_the_same_version_under_another_request_is_not_queued_twice(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    action = world.an_action()
    await world.run(world.scheduling(action))
    world.clock.advance(timedelta(seconds=1))
    assert len(await world.run(world.scheduling(action))) == (1 if taken_out else 0)
    world.wrong = {"a": 2} if taken_out else {}


async def test_the_same_version_is_queued_once_on_either_database(database_url: str) -> None:
    """As above without a world: the two dialects keep in step."""
    clock = ManualClock()
    store = open_store(database_url, clock=clock)
    await store.open()
    try:
        await store.upgrade(shard_count=1)
        action = an_action(clock.now())
        for expected in ([True], []):
            written = await store.run(
                store.transitions.schedule([action], uuid4(), replace=True, lock_timeout=None, tell=False)
            )
            assert [one.created for one in written] == expected
            clock.advance(timedelta(seconds=1))
        (shard,) = await store.run(store.transitions.shards(count_max=10))
        assert shard.incoming == 1
    finally:
        await store.close()


# Locks of others.


@cured(no_order=[NO_ORDER])
async def test_bulk_schedules_in_opposite_order_do_not_deadlock(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await world.schedule("a", "b", "m", "n")
    holding = await world.session()
    await holding.begin()
    await holding.connection.execute(
        "select from matrixsched.scheduled_actions where action_id in ('m', 'n') for update"
    )
    one = await world.start(world.scheduling(*map(world.an_action, ["a", "m", "b"])))
    await one.waits()
    other = await world.start(world.scheduling(*map(world.an_action, ["b", "n", "a"])))
    await other.waits()
    await holding.rollback()
    assert await deadlocks(one, other) == (1 if taken_out else 0)


async def deadlocks(*under_way: UnderWay[object]) -> int:
    found = 0
    for one in under_way:
        try:
            await one.outcome()
        except asyncpg.DeadlockDetectedError:
            found += 1
    return found


@cured(no_lock_timeout=[NO_LOCK_TIMEOUT])
async def test_a_schedule_gives_up_on_a_locked_id_in_time(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await world.schedule("hot")
    user, _ = await world.open(world.scheduling(world.an_action("hot")))
    hasty = await world.start(world.scheduling(world.an_action("hot"), lock_timeout=timedelta(milliseconds=50)))
    await hasty.waits()
    if taken_out:
        await user.rollback()
        assert len(await hasty.outcome()) == 1
    else:
        with pytest.raises(asyncpg.LockNotAvailableError):
            await hasty.outcome()
    # The setting ends with the statement's transaction: the session has no state.
    (row,) = await world.rows("select current_setting('lock_timeout') as timeout")
    assert row["timeout"] == "0"


@asynccontextmanager
async def an_app(world: World, policy: SchedulerPolicy, store: PostgresStore | None = None) -> AsyncIterator[App]:
    app = App(world.dsn, policy=policy, store=store or PostgresStore(world.dsn, "default", clock=world.clock))
    app.handlers.register(HANDLER, lambda: None, retry=None, timeout=None)
    async with app:
        yield app


async def test_one_locked_id_is_nobody_elses_trouble(world: World) -> None:
    await world.schedule("hot")
    user, _ = await world.open(world.scheduling(world.an_action("hot")))
    answers: dict[str, object] = {}
    policy = SchedulerPolicy(lock_timeout=timedelta(milliseconds=50), lock_patience=timedelta(milliseconds=100))

    async def schedule(app: App, id: str) -> None:
        try:
            answers[id] = (await app.schedule(HANDLER, id=id)).created
        except DatabaseBusy as error:
            answers[id] = type(error)

    async with an_app(world, policy) as app, anyio.create_task_group() as together:
        for id in ("first", "a", "hot", "z"):  # the first goes alone, the others gather behind it
            together.start_soon(schedule, app, id)
    assert answers == {"first": True, "a": True, "hot": DatabaseBusy, "z": True}
    await user.rollback()


class LosesTheFirstReply(PostgresStore):
    """The first schedule goes to a session of the world, and its reply is lost while its transaction is still open."""

    def __init__(self, world: World) -> None:
        super().__init__(world.dsn, "default", clock=world.clock)
        self._world = world
        self.first: Session | None = None
        self.twin_gave_up = anyio.Event()

    async def run(self, transition: Transition[T]) -> T:
        if transition.name == "schedule" and self.first is None:
            self.first, _ = await self._world.open(transition)
            raise OutcomeUnknown("the connection broke")
        try:
            return await super().run(transition)
        except DatabaseBusy:
            self.twin_gave_up.set()
            raise


async def test_what_may_have_been_done_is_not_sent_under_another_request(world: World) -> None:
    """The reply is lost, the statement still runs, its twin gives up on the lock: still nobody knows."""
    store = LosesTheFirstReply(world)
    policy = SchedulerPolicy(lock_timeout=timedelta(milliseconds=20), lock_patience=timedelta(seconds=5))
    with anyio.fail_after(DEADLINE_S):
        async with an_app(world, policy, store) as app, anyio.create_task_group() as calls:
            calls.start_soon(lambda: app.schedule(HANDLER, id="a"))
            await store.twin_gave_up.wait()
            assert store.first is not None
            await store.first.commit()
    assert len(await world.rows(f"select from matrixsched.{world.requests}")) == 1


# Prune.


@cured(delete_by_subselect=PRUNE_BY_SUBSELECT)
async def test_an_action_that_is_replaced_while_it_is_pruned_stays(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    attempts = await world.start_attempts("a", "b")
    await world.run(world.recording(*attempts.values()))
    world.clock.advance(timedelta(days=8))
    pruning = await world.paused(world.do.prune_actions(State.DONE, keep=timedelta(days=7), limit=100))
    await world.schedule("a")
    await pruning.resume()
    assert await pruning.answer() == (2 if taken_out else 1)
    assert await world.state("a") == (None if taken_out else "live")
    assert await world.state("b") is None
    assert await run_once(world) == (0 if taken_out else 1)


async def test_pruning_does_not_wait_for_a_user_who_replaces(world: World) -> None:
    attempts = await world.start_attempts("a", "b")
    await world.run(world.recording(*attempts.values()))
    world.clock.advance(timedelta(days=8))
    user, _ = await world.open(world.scheduling(world.an_action("a")))
    assert await world.run(world.do.prune_actions(State.DONE, keep=timedelta(days=7), limit=100)) == 1
    await user.commit()
    assert await world.state("a") == "live"
