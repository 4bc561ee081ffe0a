"""Pruning on request, asynchronous or not, on both databases."""

from collections.abc import AsyncIterator
from datetime import timedelta

import anyio.to_thread
import pytest

from matrixsched import App, State, call
from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput
from matrixsched.pruning import BATCH
from matrixsched.rules.retention import FINISHED, KEEP_DEFAULT
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


@pytest.fixture
async def ended(app: App, clock: ManualClock) -> AsyncIterator[App]:
    """An application with an action that is done, one that was cancelled, one that expired and one that waits."""

    @app.action("work")
    async def work() -> None: ...

    await app.schedule(work, id="done")
    await app.schedule(work, id="cancelled", delay=DAY)
    await app.schedule(work, id="expired", start_within=TICK)
    await app.schedule(work, id="waiting", delay=100 * DAY)
    clock.advance(2 * TICK)
    await app.cancel("cancelled")
    await Worker(app).run_due()
    yield app
    app.sync.close()


async def ids(app: App) -> set[str]:
    return {action.id for action in await app.list()}


async def test_by_default_each_state_is_kept_as_long_as_workers_keep_it(ended: App, clock: ManualClock):
    nothing = dict.fromkeys(FINISHED, 0)
    clock.advance(KEEP_DEFAULT[State.DONE])
    assert await ended.prune() == nothing
    clock.advance(TICK)
    assert await ended.prune() == nothing | {State.DONE: 1, State.CANCELLED: 1, State.EXPIRED: 1}
    assert await ids(ended) == {"waiting"}


async def test_one_duration_is_for_all_that_ended(ended: App, clock: ManualClock):
    clock.advance(DAY)
    assert sum((await ended.prune(DAY)).values()) == 0
    assert sum((await ended.prune(timedelta(0))).values()) == 3
    assert await ids(ended) == {"waiting"}


async def test_states_that_are_not_named_stay(ended: App, clock: ManualClock):
    clock.advance(300 * DAY)
    assert await ended.prune({State.DONE: DAY, State.FAILED: DAY}) == {State.DONE: 1, State.FAILED: 0}
    assert await ids(ended) == {"cancelled", "expired", "waiting"}
    assert await ended.prune({}) == {}


async def test_a_dry_run_counts_and_deletes_nothing(ended: App, clock: ManualClock):
    clock.advance(DAY)
    told: list[int] = []
    counted = await ended.prune(timedelta(0), progress=told.append, dry_run=True)
    assert (sum(counted.values()), told) == (3, [])
    assert len(await ids(ended)) == 4
    assert await ended.prune(timedelta(0)) == counted


async def test_more_than_a_batch_goes_in_several_and_says_how_far_it_is(ended: App, clock: ManualClock):
    await ended.schedule_many([call("work", id=f"many {number}") for number in range(BATCH + 1)])
    await Worker(ended).run_due()
    clock.advance(DAY)
    told: list[int] = []
    assert (await ended.prune(timedelta(0), progress=told.append))[State.DONE] == BATCH + 2
    assert told == [BATCH, BATCH + 2, BATCH + 3, BATCH + 4]


async def test_the_same_from_synchronous_code(ended: App, clock: ManualClock):
    clock.advance(DAY)
    told: list[int] = []

    def prune() -> None:
        assert sum(ended.sync.prune(timedelta(0), dry_run=True).values()) == 3
        assert ended.sync.prune({State.CANCELLED: timedelta(0)}, progress=told.append) == {State.CANCELLED: 1}

    await anyio.to_thread.run_sync(prune)
    assert told == [1]
    assert await ids(ended) == {"done", "expired", "waiting"}


@pytest.mark.parametrize(
    ("keep", "why"),
    [
        ({State.DONE: timedelta(0), State.LIVE: DAY}, "keep names live actions, which are never pruned"),
        ({State.DONE: timedelta(0), "gone": DAY}, "keep names 'gone', but actions end as done, failed"),
        ({State.DONE: timedelta(0), State.FAILED: -DAY}, r"keep\[failed\] is negative"),
        (7, "keep must be a timedelta, not int"),
        (-DAY, "keep is negative"),
        (timedelta.max, "keep is longer than ten years"),
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused_and_nothing_is_pruned(ended: App, clock: ManualClock, keep, why):
    clock.advance(300 * DAY)
    with pytest.raises(BadInput, match=why):
        await ended.prune(keep)
    assert len(await ids(ended)) == 4
