"""Which semaphores are balanced, whatever is to be done about those of others."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from support.scene import Scene

from matrixsched import Acquired, App
from matrixsched.clock import ManualClock
from matrixsched.events import SemaphoreBalanced
from matrixsched.semaphores import TaskSemaphore
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MANY = 1_100
"""More than are looked up at once."""


def hear_of(app: App, *keys: str) -> list[str]:
    """Who was told, as semaphore and task."""
    told: list[str] = []
    for key in keys:

        @app.on_acquired(key)
        async def hand_out(event: Acquired) -> None:
            told.append(f"{event.semaphore_key} {event.task_id}")

    return told


async def with_a_task(app: App, key: str, **options: timedelta) -> TaskSemaphore:
    semaphore = await app.semaphores.get_or_create(key, active=1, **options)
    await semaphore.enqueue("a", 1)
    return semaphore


async def change_those_of_others(app: App, clock: ManualClock) -> None:
    """Only their marks: nobody here looks at more."""
    marks = ", ".join(f"('b {number:05}', '{UUID(int=number)}')" for number in range(MANY))
    await Scene(app.store, clock).sql(
        f"insert into matrixsched.semaphore_changes (semaphore, change_guid) values {marks}"
    )


async def make_late(app: App, clock: ManualClock, key: str, count: int = 1) -> None:
    others = await app.semaphores.get_or_create(key, active=2_000, hold_for=SECOND)
    await others.enqueue_many((f"{number}", 1) for number in range(count))
    await others.balance()
    clock.advance(SECOND)


async def test_late_places_of_others_hide_none_of_ours(app: App, clock: ManualClock):
    told = hear_of(app, "mine")
    await make_late(app, clock, "others", MANY)
    mine = await with_a_task(app, "mine", hold_for=SECOND)
    worker = Worker(app)
    await worker.run_due()
    await mine.enqueue("b", 1)
    await worker.run_due()
    assert told == ["mine a"]
    clock.advance(SECOND)
    await worker.run_due()
    assert told == ["mine a", "mine b"]


@pytest.mark.parametrize("late", ["z of others", "z of ours"])
async def test_a_late_place_at_the_end_does_not_hide_what_changed_before(app: App, clock: ManualClock, late: str):
    told = hear_of(app, "mine", "z of ours")
    await make_late(app, clock, late)
    await change_those_of_others(app, clock)
    await with_a_task(app, "mine")
    await Worker(app).run_due()
    assert "mine a" in told


async def test_changed_and_late_ones_have_their_turns(app: App, clock: ManualClock):
    told = hear_of(app, *"abcdef")
    worker = Worker(app)
    for key in "abc":
        await with_a_task(app, key, hold_for=SECOND)
    await worker.run_due()
    clock.advance(SECOND)
    for key in "def":
        await with_a_task(app, key)
    order: list[str] = []

    def note(balanced: SemaphoreBalanced) -> None:
        order.append(balanced.key)
        clock.advance(worker.policy.hold_max + timedelta(milliseconds=1))  # one takes all the time

    app.events.subscribe(SemaphoreBalanced, note)
    for _ in range(7):
        await worker.balancing.step()
    assert sorted(order[:6]) == list("abcdef")
    assert set(told) == {f"{key} a" for key in "abc"}


async def test_one_worker_lets_the_others_have_their_turns(app: App, clock: ManualClock):
    """However many are to be balanced, the chore is held for a moment."""
    hear_of(app, *"abcdef")
    for key in "abcdef":
        await with_a_task(app, key)
    worker = Worker(app)
    took = worker.policy.hold_max / 2
    balanced: list[str] = []

    def note(one: SemaphoreBalanced) -> None:
        balanced.append(one.key)
        clock.advance(took)

    app.events.subscribe(SemaphoreBalanced, note)
    await worker.balancing.step()
    assert balanced == list("abc")
    assert await Worker(app).balancing.chore.take() is not None


async def test_whose_turn_it_is_not_asks_again_soon(app: App):
    hear_of(app, "mine")
    await with_a_task(app, "mine")
    await Worker(app).balancing.chore.take()
    worker = Worker(app)
    hold_max_s = worker.policy.hold_max.total_seconds()
    assert hold_max_s <= await worker.balancing.step() <= 2 * hold_max_s


async def test_whoever_balanced_looks_for_the_events_at_once(app: App, clock: ManualClock):
    hear_of(app, "mine")
    await with_a_task(app, "mine")
    worker = Worker(app)
    await worker.balancing.step()
    before = clock.now()
    await worker._news.wait_at_most(60, clock)
    assert clock.now() == before
