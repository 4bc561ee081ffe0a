"""What workers tidy away: by themselves, one at a time, at the pace at which it comes in."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from support.queues import storage_of

from matrixsched import App, Outcome, Retry, State, call
from matrixsched.clock import ManualClock, SeededChance, SystemChance
from matrixsched.events import Tidied
from matrixsched.rules.names import shard_of
from matrixsched.rules.queues import VISIBILITY_MAX, NewItem
from matrixsched.store.chores import TIDY
from matrixsched.store.statements import statement
from matrixsched.store.store import Store
from matrixsched.store.transition import Ask, Conversation, Transition
from matrixsched.store.values import Change, TidyPosition
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker import Worker, WorkerPolicy
from matrixsched.worker.policy import ATTEMPT_LEASE_MAX

pytestmark = pytest.mark.anyio

T = TypeVar("T")

DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
FAR = 300 * DAY
POLICY = WorkerPolicy()
EVERY_S = POLICY.tidy_every.total_seconds()


@pytest.fixture
def tidied(app: App) -> list[Tidied]:
    """What was told of it."""

    @app.action("work")
    async def work() -> None: ...

    told: list[Tidied] = []
    app.events.subscribe(Tidied, told.append)
    return told


async def rows(app: App, table: str) -> int:
    prefix = "matrixsched." if app.store.dialect == "postgresql" else "matrixsched_"
    count = statement(app.store.dialect, "default", "count", f"select count(*) as count from {prefix}{table}")

    def asked() -> Conversation[int]:
        (row,) = yield Ask(count, {})
        return int(row["count"])

    return await app.store.run(Transition("count", asked))


async def tidy(worker: Worker) -> int:
    """Until it rests; how many steps that took."""
    for steps in range(1, 200):
        if await worker.tidying.step() >= EVERY_S:
            return steps
    raise AssertionError("it does not come to rest")


def changes(app: App, name: str, ids: list[str], **options: Any) -> Transition[None]:
    """The same change to many actions, or often to one, in as few transactions as the database allows."""
    chance, do = SystemChance(), app.store.transitions

    def all_of_them() -> Conversation[None]:
        for id in ids:
            key: dict[str, Any] = {"shard": shard_of(id, 4), "id": id}
            change = Change(**key, guid=chance.guid(), request_guid=chance.guid(), expected_guid=None, delay=FAR)
            yield from getattr(do, name)(change, **options).begin()

    return Transition(name, all_of_them)


async def test_finished_actions_requests_and_dead_rows_go(app: App, clock: ManualClock, tidied: list[Tidied]):
    await app.schedule("work", id="done")
    await app.schedule("work", id="far", delay=FAR)
    await app.schedule("work", id="never", delay=FAR)
    worker = Worker(app)
    await worker.run_due()
    await app.cancel("never")
    assert await rows(app, "processing_queue") == 2
    clock.advance(POLICY.keep_done + TICK)
    assert await worker.tidying.step() == EVERY_S
    assert [action.id for action in await app.list()] == ["far"]
    assert (await rows(app, "processing_queue"), await rows(app, "requests")) == (1, 0)
    assert tidied == [Tidied(actions=2, requests=4, rows=1)]
    clock.advance(POLICY.tidy_every)
    assert await worker.tidying.step() == EVERY_S
    assert len(tidied) == 1


async def test_each_outcome_is_kept_as_long_as_the_policy_says(app: App, clock: ManualClock, tidied: list[Tidied]):
    @app.action("fail", retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise ValueError

    await app.schedule(fail, id="failed")
    await app.schedule("work", id="done")
    await app.schedule("work", id="cancelled", delay=DAY)
    await app.cancel("cancelled")
    worker = Worker(app, WorkerPolicy(keep_done=DAY, keep_cancelled=2 * DAY, keep_failed=3 * DAY))
    await worker.run_due()
    left = []
    for _ in range(4):
        await tidy(worker)
        left.append({action.id for action in await app.list()})
        clock.advance(DAY + TICK)
    assert left == [{"done", "failed", "cancelled"}, {"failed", "cancelled"}, {"failed"}, set()]


async def test_what_nobody_can_run_expires_without_a_handler(app: App, clock: ManualClock, tidied: list[Tidied]):
    await app.schedule("unheard of", id="a", expires_at=clock.now() + DAY)
    await app.schedule("unheard of", id="b")
    worker = Worker(app)
    assert await worker.run_due() == 0
    clock.advance(DAY)
    await tidy(worker)
    status = (await app.get("a")).status
    assert (status.state, status.last_outcome, status.attempts_started) == (State.EXPIRED, Outcome.EXPIRED, 0)
    assert (await app.get("b")).status.state is State.LIVE
    assert [event.expired for event in tidied] == [1]


async def test_what_the_only_worker_that_could_run_it_left_behind_expires(
    app: App, clock: ManualClock, tidied: list[Tidied]
):
    await app.schedule("rare", id="a", expires_at=clock.now() + DAY)
    worker = Worker(app)
    assert await worker.run_due() == 0  # it is parked for workers that know its handler
    async with App(app.url, clock=clock, chance=SeededChance(2)) as other:

        @other.action("rare")
        async def rare() -> None: ...

        await Worker(other).intake.step()  # which claims it, and is killed
    clock.advance(DAY)
    await worker.run_due()
    await tidy(worker)
    status = (await app.get("a")).status
    assert (status.state, status.interrupted) == (State.EXPIRED, 1)
    assert [past.outcome for past in await app.history("a")] == [Outcome.INTERRUPTED]


async def test_after_the_clock_was_set_back_a_crash_does_not_hold_an_action_up_for_as_long(
    app: App, clock: ManualClock, tidied: list[Tidied]
):
    await app.schedule("work", id="a")
    killed = Worker(app)
    await killed.intake.step()
    clock.advance(-DAY)
    worker = Worker(app)
    await tidy(worker)
    assert [event.leases for event in tidied] == [1]
    clock.advance(ATTEMPT_LEASE_MAX)
    assert await worker.run_due() == 1
    status = (await app.get("a")).status
    assert (status.state, status.interrupted) == (State.DONE, 1)


async def test_after_the_clock_was_set_back_a_crash_does_not_hold_tasks_of_a_queue_up_for_as_long(
    app: App, clock: ManualClock, tidied: list[Tidied]
):
    queue = storage_of(app.store)
    await queue.put_many([NewItem(queue=1, data=b"x")] * 1_200)
    await queue.get(1, 700)
    clock.advance(-DAY)
    worker = Worker(app)
    assert await tidy(worker) == 3
    assert sum(event.leases for event in tidied) == 700
    clock.advance(VISIBILITY_MAX)
    assert [task.attempts for task in await queue.get(1, 1_200)] == [1] * 700
    clock.advance(DAY)
    assert len(await queue.get(1, 1_200)) == 1_200


async def test_after_the_clock_was_set_back_a_new_version_does_not_wait_for_a_crashed_one_as_long(
    app: App, clock: ManualClock, tidied: list[Tidied]
):
    await app.schedule("work", id="a")
    killed = Worker(app)
    await killed.intake.step()
    clock.advance(-DAY)
    await app.run_now("a")
    worker = Worker(app)
    assert await worker.run_due() == 0
    await tidy(worker)
    clock.advance(ATTEMPT_LEASE_MAX)
    assert await worker.run_due() == 1
    assert (await app.get("a")).status.state is State.DONE


# As much as comes in.


async def test_what_is_old_goes_batch_after_batch_without_a_rest(app: App, clock: ManualClock, tidied: list[Tidied]):
    await app.schedule_many([call("work", id=f"many {number}") for number in range(1200)])
    worker = Worker(app)
    await worker.run_due()
    clock.advance(POLICY.keep_done + TICK)
    assert [await worker.tidying.step() for _ in range(3)] == [0, 0, EVERY_S]
    assert [event.actions for event in tidied] == [500, 500, 200]
    assert await rows(app, "scheduled_actions") == 0


async def test_dead_rows_go_batch_after_batch_without_a_rest(app: App, clock: ManualClock, tidied: list[Tidied]):
    ids = [f"many {number}" for number in range(1200)]
    await app.schedule_many([call("work", id=id, delay=FAR) for id in [*ids, "kept"]])
    worker = Worker(app)
    await worker.run_due()
    await app.store.run(changes(app, "cancel", ids))
    assert await tidy(worker) == 3
    assert sum(event.rows for event in tidied) == 1200
    assert await rows(app, "processing_queue") == 1


async def test_a_far_future_action_that_is_moved_all_the_time_does_not_pile_up(
    app: App, clock: ManualClock, tidied: list[Tidied]
):
    often = 1000 if app.store.dialect == "sqlite" else 200
    await app.schedule("work", id="far", delay=FAR)
    await app.schedule_many([call("work", id=f"other {number}", delay=FAR) for number in range(600)])
    worker = Worker(app)
    for _ in range(10):
        await app.store.run(changes(app, "reschedule", ["far"] * often, revive=False, tell=False))
        assert await rows(app, "incoming_queue") >= often
        await worker.run_due()
        await tidy(worker)
        assert (await rows(app, "incoming_queue"), await rows(app, "processing_queue")) == (0, 601)
        clock.advance(POLICY.keep_requests + TICK)
    await tidy(worker)
    assert await rows(app, "requests") == 0
    assert (await app.get("far")).meta.revision == 10 * often + 1


async def test_at_most_half_of_the_time_is_spent_on_it(app: App, clock: ManualClock, tidied: list[Tidied]):
    await app.schedule_many([call("work", id=f"many {number}") for number in range(3)])
    worker = Worker(app, WorkerPolicy(tidy_batch=2))
    await worker.run_due()
    clock.advance(POLICY.keep_done + TICK)
    store, spent = app.store.run, timedelta(seconds=2)

    async def slowly(transition: Transition[T]) -> T:
        if transition.name == "prune_requests":
            clock.advance(spent)
        return await store(transition)

    app.store.run = slowly  # type: ignore[method-assign]
    assert await worker.tidying.step() == pytest.approx(spent.total_seconds())
    assert await Worker(app).tidying.step() == EVERY_S


# One at a time.


async def test_an_end_that_arrives_late_does_not_end_the_next_turn(app: App, clock: ManualClock, tidied: list[Tidied]):
    chore, other = Worker(app).tidying.chore, Worker(app).tidying.chore
    await chore.take()
    late = app.store.transitions.end_chore(TIDY, chore.holder, TidyPosition())
    await chore.end()
    clock.advance(POLICY.tidy_every)
    assert await chore.take() is not None
    assert not await app.store.run(late)
    assert await other.take() is None
    await chore.end()
    clock.advance(POLICY.tidy_every)
    assert await other.take() is not None


class NotedStore(StoreWrapper):
    """Notes what it is asked, by name."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[str] = []

    async def run(self, transition: Transition[T]) -> T:
        self.asked.append(transition.name)
        return await self._inner.run(transition)

    def sibling(self) -> Store:
        return self._inner.sibling()


@pytest.fixture
def noted(app: App) -> Iterator[NotedStore]:
    noted = NotedStore(app.store)
    app.store = noted
    yield noted
    app.store = noted._inner


async def halfway(app: App) -> Worker:
    """A worker that has gone through some of the rows, and has more before it."""
    await app.schedule_many([call("work", id=f"far {number}", delay=FAR) for number in range(12)])
    worker = Worker(app, WorkerPolicy(tidy_batch=5))
    await worker.run_due()
    assert await worker.tidying.step() == EVERY_S / 10
    return worker


async def test_whoever_is_not_at_it_pays_one_small_statement(app: App, noted: NotedStore, tidied: list[Tidied]):
    first, others = await halfway(app), [Worker(app) for _ in range(3)]
    noted.asked.clear()
    assert [await other.tidying.step() for other in others] == [EVERY_S] * 3
    assert noted.asked == ["take_chore"] * 3
    await tidy(first)
    noted.asked.clear()
    assert [await other.tidying.step() for other in (first, *others)] == [EVERY_S] * 4
    assert noted.asked == ["take_chore"] * 4


async def test_a_worker_that_was_killed_is_replaced_when_its_lease_is_over(
    app: App, clock: ManualClock, noted: NotedStore, tidied: list[Tidied]
):
    await halfway(app)
    other = Worker(app, WorkerPolicy(tidy_batch=5))
    clock.advance(POLICY.shard_lease)
    assert await other.tidying.step() == EVERY_S
    clock.advance(POLICY.tidy_every / 10)
    noted.asked.clear()
    # Twelve rows, five at a time: the second and third batch are left.
    assert [await other.tidying.step(), await other.tidying.step()] == [EVERY_S / 10, EVERY_S]
    assert noted.asked.count("sweep_dead") == 2


async def test_a_worker_that_stops_lets_another_go_on_at_once(app: App, noted: NotedStore, tidied: list[Tidied]):
    worker, other = await halfway(app), Worker(app, WorkerPolicy(tidy_batch=5))
    worker.stop()
    await worker.run()
    noted.asked.clear()
    assert [await other.tidying.step(), await other.tidying.step()] == [EVERY_S / 10, EVERY_S]
    assert noted.asked.count("sweep_dead") == 2


async def test_a_worker_that_stops_leaves_the_chore_of_another_alone(app: App, tidied: list[Tidied]):
    holder, stopping = await halfway(app), Worker(app)
    assert await stopping.tidying.step() == EVERY_S
    stopping.stop()
    await stopping.run()
    assert await Worker(app).tidying.step() == EVERY_S
    assert await holder.tidying.step() == EVERY_S / 10


async def test_a_worker_that_starts_goes_on_where_another_stopped(app: App, clock: ManualClock, tidied: list[Tidied]):
    """The sweep comes to a dead row behind the place where it stopped, and not to one before it, in this round."""
    await halfway(app)
    ids = sorted((shard_of(f"far {number}", 4), f"far {number}") for number in range(12))
    for _, id in (ids[0], ids[6]):
        await app.cancel(id)
    clock.advance(DAY)
    other = Worker(app, WorkerPolicy(tidy_batch=5))
    await other.tidying.step()
    assert [event.rows for event in tidied if event.rows] == [1]
    await tidy(other)
    assert [event.rows for event in tidied if event.rows] == [1]
    clock.advance(POLICY.tidy_every)
    await tidy(other)
    assert [event.rows for event in tidied if event.rows] == [1, 1]


async def test_workers_take_turns(app: App, clock: ManualClock, noted: NotedStore, tidied: list[Tidied]):
    workers = [Worker(app), Worker(app)]
    done: list[Worker] = []
    for worker in (*workers, *workers):
        noted.asked.clear()
        await worker.tidying.step()
        if "end_chore" in noted.asked:
            done.append(worker)
        clock.advance(POLICY.tidy_every / 2)
    assert len(done) == 2
