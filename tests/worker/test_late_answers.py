"""Claims whose answer does not come within the time that a worker waits for one; first seen in runs of chaos."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.elsewhere import schedule_elsewhere
from support.scene import SHARDS

from matrixsched import App, State, every
from matrixsched.clock import ManualClock
from matrixsched.errors import OutcomeUnknown
from matrixsched.events import ShardSynced
from matrixsched.rules.names import shard_of
from matrixsched.store.transition import Transition
from matrixsched.worker import Worker, WorkerPolicy
from matrixsched.worker.intake import TAKEN_WITHIN_MAX

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
LEASE = WorkerPolicy().attempt_lease


class Late:
    """The answer to one transition is awaited in vain for as long as a worker waits; it was carried out."""

    def __init__(self, app: App, clock: ManualClock, name: str) -> None:
        self._run, self._clock, self._name = app.store.run, clock, name
        self.was_late = False
        app.store.run = self.run  # type: ignore[method-assign]

    async def run(self, transition: Transition[Any]) -> Any:
        answer = await self._run(transition)
        if transition.name == self._name and answer.attempts and not self.was_late:
            self.was_late = True
            self._clock.advance(LEASE / 3 + timedelta(milliseconds=1))
            raise OutcomeUnknown(f"{transition.name}: no answer")
        return answer


class Delayed(Late):
    """One transition gets to the database only when the worker has looked for what it did."""

    def __init__(self, app: App, clock: ManualClock, name: str) -> None:
        super().__init__(app, clock, name)
        self._delayed: Transition[Any] | None = None

    async def run(self, transition: Transition[Any]) -> Any:
        if transition.name == self._name and not self.was_late:
            self.was_late = True
            self._delayed = transition
            raise OutcomeUnknown(f"{transition.name}: the connection broke")
        answer = await self._run(transition)
        if transition.name == "claimed_by" and self._delayed is not None:
            await self._run(self._delayed)
            self._delayed = None
        return answer


async def step_by_step(worker: Worker, clock: ManualClock) -> None:
    """Slots of a limit begin a little later."""
    for _ in range(20):
        await worker.intake.step()
        clock.advance(SECOND / 100)


CLAIMS = pytest.mark.parametrize(
    ("name", "delay", "limit"),
    [("move", 0 * SECOND, None), ("claim", SECOND, None), ("claim_gated", 0 * SECOND, "customer")],
)


async def runs_once_and_uninterrupted(
    app: App, clock: ManualClock, losing: type[Late], name: str, delay: timedelta, limit: str | None
) -> None:
    """An action whose claim by this transition is lost in that way."""
    ran: list[int] = []

    @app.action("work")
    async def work() -> None:
        ran.append(1)

    await app.limits.set("key:customer", "100/s", pool=100)
    clock.advance(SECOND)  # the first claim gets a slot
    worker = Worker(app, WorkerPolicy(slots_ahead=timedelta(0)))
    await app.schedule(work, id="w", delay=delay, limit=limit)
    if delay:
        await worker.intake.step()
        clock.advance(delay)
    lost = losing(app, clock, name)
    with pytest.raises(OutcomeUnknown):
        await step_by_step(worker, clock)
    assert lost.was_late

    for _ in range(3):
        clock.advance(SECOND / 10)
        await worker.run_due()
    status = (await app.get("w")).status
    assert (len(ran), status.state, status.succeeded, status.interrupted) == (1, State.DONE, 1, 0)


@CLAIMS
async def test_what_was_claimed_without_an_answer_is_given_back_unattempted(app, clock, name, delay, limit):
    await runs_once_and_uninterrupted(app, clock, Late, name, delay, limit)


@CLAIMS
async def test_what_was_not_claimed_when_it_was_looked_for_is_not_claimed_later(app, clock, name, delay, limit):
    await runs_once_and_uninterrupted(app, clock, Delayed, name, delay, limit)


async def test_a_shard_is_free_after_its_claim_was_looked_for(app, clock):
    """Not only when its lease ends; and nobody is told that it was lost."""

    @app.action("work")
    async def work() -> None: ...

    synced: list[ShardSynced] = []
    app.events.subscribe(ShardSynced, synced.append)
    await app.schedule(work, id="w")
    Delayed(app, clock, "move")
    with pytest.raises(OutcomeUnknown):
        await Worker(app).intake.step()
    assert [shard.locked for shard in await app.shards()] == [False] * SHARDS
    assert [one.lost for one in synced] == [False]


@pytest.mark.parametrize("losing", [Late, Delayed])
async def test_who_lost_the_answer_to_a_move_that_takes_its_shard_waits_until_it_cannot_come_any_more(
    app, clock, losing
):
    app.action("work")(lambda: None)
    worker = Worker(app)
    await worker.intake.step()
    await schedule_elsewhere(app, "w")
    worker.intake.hear(shard_of("w", SHARDS))
    losing(app, clock, "move")

    async with anyio.create_task_group() as group:

        async def look() -> None:
            with pytest.raises(OutcomeUnknown):
                await worker.intake.step()

        group.start_soon(look)
        if losing is Delayed:
            while not clock._sleepers:
                await anyio.lowlevel.checkpoint()
            clock.advance(TAKEN_WITHIN_MAX)

    assert [shard.locked for shard in await app.shards()] == [False] * SHARDS
    await worker.run_due()
    status = (await app.get("w")).status
    assert (status.state, status.succeeded, status.interrupted) == (State.DONE, 1, 0)


async def test_a_claim_that_was_long_on_its_way_leaves_out_no_tick_that_is_still_to_come(app, clock):
    @app.action("work")
    async def work() -> None: ...

    tick_at = clock.now()
    await app.schedule(work, id="w", at=tick_at, repeat=every(3 * SECOND, anchor=tick_at))
    run = app.store.run

    async def slow_to_get_there(transition: Transition[Any]) -> Any:
        if transition.name == "move":
            clock.advance(2 * SECOND)
        return await run(transition)

    app.store.run = slow_to_get_there
    worker = Worker(app)
    await worker.intake.step()
    await worker.runner.run_next()
    await worker.recorder.step()
    action = await app.get("w")
    assert (action.status.succeeded, action.status.scheduled_at) == (1, tick_at + 3 * SECOND)
