"""Gates as users see them: what workers start, when, and what waits meanwhile; several workers, one fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from support.scene import Scene

from matrixsched import App, Context, call
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import DatabaseUnavailable
from matrixsched.rules.action import EVENT
from matrixsched.store.transition import Transition
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
TOKYO, BERLIN = "Asia/Tokyo", "Europe/Berlin"
"""The clock of tests stands at midnight in UTC: it is nine in the morning there, and one at night here."""


class Fleet:
    """Workers that take turns, and what they started."""

    def __init__(self, app: App, clock: ManualClock, workers: int = 4) -> None:
        self.app = app
        self.clock = clock
        # On a clock that stands still nothing can wait for a slot that is taken ahead of its time.
        policy = WorkerPolicy(slots_ahead=timedelta(0))
        self._workers = [Worker(app, policy, name=f"worker {number}") for number in range(workers)]
        self.started: list[str] = []

    async def look(self) -> list[str]:
        """All of them run what they may now, beginning with another one each time; what was started."""
        before = len(self.started)
        for worker in self._workers:
            await worker.run_due()
        self._workers.append(self._workers.pop(0))
        return self.started[before:]

    async def look_every(self, interval: timedelta, times: int) -> list[str]:
        before = len(self.started)
        for _ in range(times):
            self.clock.advance(interval)
            await self.look()
        return self.started[before:]


def kinds(started: list[str]) -> Counter[str]:
    """How many of each: the first word of an id."""
    return Counter(id.split()[0] for id in started)


@pytest.fixture
async def app(database_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[App]:
    app = App(database_url, clock=clock, chance=SeededChance(1))
    await app.init(shards=16)
    async with app:
        yield app


@pytest.fixture
def fleet(app: App, clock: ManualClock) -> Fleet:
    @app.action("send")
    async def send(context: Context) -> None:
        fleet.started.append(context.id)

    @app.action("ring")
    async def ring(context: Context) -> None:
        fleet.started.append(context.id)

    fleet = Fleet(app, clock)
    return fleet


async def test_what_a_limit_holds_back_stays_due_and_unattempted(app: App, fleet: Fleet):
    await app.limits.set("global", "1/min")
    await app.schedule_many(call("send", id=f"{n}") for n in range(3))
    assert await fleet.look() == []
    status = (await app.get("1")).status
    assert (status.attempts_started, status.scheduled_at) == (0, fleet.clock.now())
    assert len(await fleet.look_every(MINUTE, 3)) == 3


async def test_all_workers_together_go_at_the_rate_of_a_limit(app: App, fleet: Fleet):
    await app.limits.set("handler:send", "2/s", pool=3)
    await app.schedule_many(call("send", id=f"{n}") for n in range(50))
    counts = [len(await fleet.look_every(SECOND, 1)) for _ in range(10)]
    # The pool fills from the moment at which the limit was set; the first token comes after a period.
    assert counts == [2] * 10
    fleet.clock.advance(MINUTE)
    assert len(await fleet.look()) == 3


async def test_a_backlog_that_is_held_back_delays_nobody_else(app: App, fleet: Fleet):
    await app.limits.set("key:slow", "1/day")
    await app.schedule_many(call("send", id=f"held {n}", limit="slow") for n in range(300))
    assert await fleet.look() == []
    await app.schedule("ring", id="free")
    await app.schedule("send", id="other", limit="other")
    assert sorted(await fleet.look()) == ["free", "other"]


async def test_a_campaign_that_begins_delays_nobody_however_large_it_is(app: App, fleet: Fleet, clock: ManualClock):
    await app.templates.set("promo")
    await app.limits.set("template:promo", "1/day")
    begins = clock.now() + MINUTE
    await app.schedule_many(call("send", id=f"promo {n}", template="promo", at=begins) for n in range(3_000))
    await app.schedule_many(call("ring", id=f"free {n}", at=begins) for n in range(3))
    await fleet.look()
    clock.advance(MINUTE)
    worker = Worker(app, WorkerPolicy(concurrency=1, batch_max=50))
    for _ in range(16):  # a shard each; to bring the campaign before its gate takes sixty batches
        await worker.intake.step()
        while worker.runner.has_waiting:
            await worker.runner.run_next()
        await worker.recorder.step()
    assert kinds(fleet.started)["free"] == 3


async def test_each_key_has_its_own_pace(app: App, fleet: Fleet):
    await app.limits.set("key:*", "1/min")
    await app.limits.set("key:quick", "10/min")
    for key in ("quick", "a", "b"):
        await app.schedule_many(call("send", id=f"{key} {n}", limit=key) for n in range(40))
    await fleet.look_every(6 * SECOND, 20)
    assert kinds(fleet.started) == {"quick": 20, "a": 2, "b": 2}


async def test_the_more_important_go_first(app: App, fleet: Fleet):
    """They are in few shards, and the others wait in all of them, in many lanes."""
    await app.limits.set("global", "4/min")
    await app.schedule_many(call("send", id=f"usual {n}", priority=1, limit=f"{n % 16}") for n in range(200))
    await fleet.look_every(15 * SECOND, 20)
    await app.schedule_many(call("send", id=f"urgent {n}", priority=0) for n in range(4))
    fleet.started.clear()
    await fleet.look_every(15 * SECOND, 10)
    assert kinds(fleet.started[:10])["urgent"] == 4


async def test_every_window_the_fleet_sends_what_the_formulas_say(app: App, fleet: Fleet):
    """Of 100 in a minute each of two templates may have half; only one has a priority window, and some are inside."""
    await app.limits.set("global", "100/min", pool=100)
    await app.templates.set("promo", distribution="morning")
    await app.templates.set("news", max_speed="20/min")
    await app.limits.set("template:news", "20/min", pool=20)
    fleet.clock.advance(10 * MINUTE)
    await app.schedule_many(call("send", id=f"tokyo {n}", template="promo", zone=TOKYO) for n in range(120))
    await app.schedule_many(call("send", id=f"berlin {n}", template="promo", zone=BERLIN) for n in range(100))
    await app.schedule_many(call("send", id=f"news {n}", template="news") for n in range(50))
    sent = []
    for _ in range(5):
        first = await fleet.look()
        assert await fleet.look_every(29 * SECOND, 2) == []
        sent.append(dict(kinds(first)))
        fleet.clock.advance(2 * SECOND)
    assert sent == [
        {"tokyo": 50, "news": 20},
        {"tokyo": 50, "news": 20},
        # Twenty inside are fewer than the share of 50: filled up with others, to the share of those.
        {"tokyo": 20, "berlin": 30, "news": 10},
        # Alone it may have everything; there are seventy.
        {"berlin": 70},
        {},
    ]


async def test_a_paused_template_waits_and_the_others_get_its_share(app: App, fleet: Fleet):
    await app.limits.set("global", "60/min", pool=60)
    for name in ("a", "b"):
        await app.templates.set(name)
        await app.schedule_many(call("send", id=f"{name} {n}", template=name) for n in range(200))
    await app.templates.pause("b", 2 * MINUTE)
    fleet.clock.advance(MINUTE)
    assert kinds(await fleet.look()) == {"a": 60}
    fleet.clock.advance(MINUTE)
    assert kinds(await fleet.look()) == {"a": 30, "b": 30}


async def test_no_template_starves_over_a_hundred_windows(app: App, fleet: Fleet):
    """Thirty templates, each with a share of one message, and room for twenty: two of three in each window."""
    names = [f"t{number}" for number in range(30)]
    await app.limits.set("global", "20/min", pool=20)
    for name in names:
        await app.templates.set(name, distribution="morning", zone=TOKYO)
        await app.schedule_many(call("send", id=f"{name} {n}", template=name) for n in range(70))
    served: Counter[str] = Counter()
    waited = dict.fromkeys(names, 0)
    for _ in range(100):
        fleet.clock.advance(MINUTE)
        sent = kinds(await fleet.look())
        assert sum(sent.values()) == 20
        assert max(sent.values()) == 1
        served += sent
        waited = {name: 0 if name in sent else waited[name] + 1 for name in names}
        assert max(waited.values()) <= 1
    assert set(served.values()) <= {66, 67}


async def test_a_retry_spends_of_the_quota_again(app: App, fleet: Fleet):
    failing = {"a"}

    @app.action("fail")
    async def fail(context: Context) -> None:
        fleet.started.append(context.id)
        if context.attempt == 1 and context.id in failing:
            raise ValueError("no luck")

    await app.limits.set("global", "1/min", pool=1)
    await app.templates.set("promo")
    await app.schedule("fail", id="a", template="promo")
    fleet.clock.advance(MINUTE)
    assert await fleet.look() == ["a"]
    fleet.clock.advance(50 * SECOND)
    assert await fleet.look() == []
    fleet.clock.advance(MINUTE)
    assert await fleet.look() == ["a"]


async def test_expired_messages_are_not_sent_and_leave_their_share_to_others(app: App, fleet: Fleet):
    await app.limits.set("global", "2/min", pool=2)
    await app.templates.set("promo")
    soon = fleet.clock.now() + MINUTE + 30 * SECOND
    await app.schedule_many(call("send", id=f"short {n}", template="promo", expires_at=soon) for n in range(5))
    await app.schedule_many(call("send", id=f"long {n}", template="promo", delay=SECOND) for n in range(5))
    fleet.clock.advance(MINUTE)
    assert len(await fleet.look()) == 2
    fleet.clock.advance(MINUTE)
    assert kinds(await fleet.look()) == {"long": 2}


# Events.


async def test_events_run_though_everything_else_is_held_back(app: App, fleet: Fleet, clock: ManualClock):
    await app.limits.set("global", "1/day")
    await app.limits.set("handler:ring", "1/day")
    await app.schedule_many(call("ring", id=f"other {n}") for n in range(20))
    scene = Scene(app.store, clock)
    await scene.send([scene.new(f"event {n}", handler="ring", shard=n % 4, lane=EVENT) for n in range(10)])
    assert kinds(await fleet.look()) == {"event": 10}


async def test_no_room_is_left_to_others_before_all_events_of_a_shard_are_claimed(
    app: App, fleet: Fleet, clock: ManualClock
):
    scene = Scene(app.store, clock)
    await app.schedule_many(call("send", id=f"other {n}", delay=SECOND) for n in range(1000))
    await scene.send([scene.new(f"event {n}", handler="ring", shard=2, lane=EVENT, delay=MINUTE) for n in range(25)])
    assert await fleet.look() == []
    clock.advance(MINUTE)
    worker = Worker(app, WorkerPolicy(concurrency=30, batch_max=10), name="with little room")
    await worker.run_due()
    assert kinds(fleet.started[:25]) == {"event": 25}
    assert kinds(fleet.started) == {"event": 25, "other": 1000}


async def test_lanes_that_were_found_unlisted_are_looked_at_at_once(app: App, clock: ManualClock):
    """They were filled by a worker that did not come to say so."""
    app.action("work")(lambda: None)
    await app.limits.set("key:mx", "1/s", pool=5)
    clock.advance(MINUTE)
    await app.schedule("work", id="a", limit="mx")
    struck, heir = Worker(app), Worker(app)
    run = app.store.run

    async def run_until_it_is_killed(transition: Transition[Any]) -> Any:
        if transition.name == "claim_gated":
            raise DatabaseUnavailable("it was killed")
        return await run(transition)

    app.store.run = run_until_it_is_killed  # type: ignore[method-assign]
    with pytest.raises(DatabaseUnavailable):
        await struck.intake.step()
    app.store.run = run  # type: ignore[method-assign]
    rest_s = await heir.intake.step()
    assert rest_s > 0
    await heir.intake.relist()

    await heir._news.wait_at_most(rest_s, clock)  # on a clock that stands still, nothing but news ends that
    assert await heir.run_due() == 1
