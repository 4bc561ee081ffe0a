"""What many are asked to do is done to what was seen: whoever was started since is not run once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import pytest

from matrixsched import Action, App, Retry, call, every
from matrixsched.clock import ManualClock
from matrixsched.errors import ActionNotFound
from matrixsched.ops import bulk
from matrixsched.ops.bulk import Look, Part, Selection, Tally, Verb
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker import Worker

T = TypeVar("T")

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@dataclass
class Late:
    """One action, and what becomes of it between the look and the change."""

    action: Action
    meanwhile: Callable[[], Awaitable[object]]
    in_words: str = "one"
    ids: tuple[str, ...] = ()
    is_complete: bool = True

    async def of(self, app: App) -> AsyncIterator[list[Action]]:
        await self.meanwhile()
        yield [self.action]


@dataclass
class Work:
    """Handlers that count what they run, and may do something else meanwhile."""

    app: App
    runs: list[str] = field(default_factory=list)
    inside: Callable[[], Awaitable[object]] | None = None

    def __post_init__(self) -> None:
        @self.app.action("work")
        async def work() -> None:
            self.runs.append("work")
            if self.inside is not None:
                inside, self.inside = self.inside, None
                await inside()

        @self.app.action("fail", retry=Retry(max_attempts=2, first_delay=HOUR))
        async def fail() -> None:
            self.runs.append("fail")
            raise RuntimeError("no")

    async def run(self) -> None:
        await Worker(self.app).run_due()

    async def change(self, late: Late) -> Tally:
        tally = Tally("run_now", leaves_running=True)
        await bulk.change(self.app, late, tally, lambda done: None)
        return tally


@pytest.fixture
def work(app: App) -> Work:
    return Work(app)


async def nothing() -> None: ...


@pytest.mark.parametrize("handler", ["work", "fail"])
async def test_what_ran_between_the_look_and_the_change_does_not_run_twice(app: App, work: Work, handler: str) -> None:
    await app.schedule(handler, id="a")
    tally = await work.change(Late(await app.get("a"), work.run))
    await work.run()
    assert work.runs == [handler]
    assert (tally.matched, tally.changed, tally.skipped) == (1, 0, 1)


async def test_what_runs_since_the_look_does_not_run_twice(app: App, work: Work) -> None:
    await app.schedule("work", id="a")
    seen, tallies = await app.get("a"), []

    async def change() -> None:
        tallies.append(await work.change(Late(seen, nothing)))

    work.inside = change
    await work.run()
    await work.run()
    assert work.runs == ["work"]
    assert [(tally.changed, tally.skipped) for tally in tallies] == [(0, 1)]


async def test_what_repeats_and_ran_since_the_look_is_left_to_its_rule(
    app: App, work: Work, clock: ManualClock
) -> None:
    await app.schedule("work", id="a", repeat=every(HOUR), delay=HOUR)
    clock.advance(HOUR)
    tally = await work.change(Late(await app.get("a"), work.run))
    await work.run()
    assert work.runs == ["work"]
    assert (tally.changed, tally.skipped) == (0, 1)


async def test_what_is_as_it_was_seen_is_run(app: App, work: Work) -> None:
    await app.schedule("work", id="a", delay=HOUR)
    tally = await work.change(Late(await app.get("a"), nothing))
    await work.run()
    assert (work.runs, tally.changed) == (["work"], 1)


async def counted_and_then_changed(app: App, meanwhile: Callable[[], Awaitable[object]]) -> Tally:
    """As the command does: it asks between the two."""
    selection, shown = Selection(ids=["a"]), dict[str, Look]()
    assert (await bulk.count(app, "run_now", selection, shown=shown)).matched == 1
    await meanwhile()
    tally = Tally("run_now", shown=shown)
    await bulk.change(app, selection, tally, lambda done: None)
    return tally


@pytest.mark.parametrize("handler", ["work", "fail"])
async def test_what_ran_while_the_question_was_open_does_not_run_twice(app: App, work: Work, handler: str) -> None:
    await app.schedule(handler, id="a")
    tally = await counted_and_then_changed(app, work.run)
    await work.run()
    assert work.runs == [handler]
    assert (tally.changed, tally.skipped) == (0, 1)


async def test_what_began_while_the_question_was_open_does_not_run_twice(app: App, work: Work) -> None:
    await app.schedule("work", id="a")
    beginning = Worker(app)
    tally = await counted_and_then_changed(app, beginning.intake.step)
    await beginning.run_due()
    await work.run()
    assert work.runs == ["work"]
    assert (tally.changed, tally.skipped) == (0, 1)


async def test_what_had_ended_when_it_was_shown_is_run_again(app: App, work: Work) -> None:
    await app.schedule("work", id="a")
    await work.run()
    tally = await counted_and_then_changed(app, nothing)
    await work.run()
    assert (work.runs, tally.changed) == (["work", "work"], 1)


# Many at a time.


class Counting(StoreWrapper):
    """The real store, which counts what it is asked for, and lets something happen before a change."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def run(self, transition: Transition[T]) -> T:
        self.asked[transition.name] += 1
        if transition.name in ("cancel", "reschedule") and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await self._inner.run(transition)

    def sibling(self) -> Counting:
        return Counting(self._inner.sibling())


@asynccontextmanager
async def counting(app: App) -> AsyncIterator[tuple[App, Counting]]:
    store = Counting(app.store.sibling())
    async with App(app.url, installation=app.installation, clock=app.clock, store=store) as counted:
        yield counted, store


@pytest.mark.parametrize(("verb", "asked"), [("cancel", "cancel"), ("run_now", "reschedule")])
async def test_many_are_looked_up_and_changed_together(app: App, verb: Verb, asked: str) -> None:
    ids = [f"a{number}" for number in range(120)]
    await app.schedule_many(call("work", id=id, delay=HOUR) for id in ids)
    tally = Tally(verb)
    async with counting(app) as (counted, store):
        await bulk.change(counted, Part(Selection(ids=ids), HOUR), tally, lambda done: None)
    assert (tally.matched, tally.changed, tally.skipped) == (120, 120, 0)
    assert store.asked["get"] == 2
    assert store.asked[asked] == 3  # of a hundred and of twenty, fifty at a time
    assert {(await app.get(id)).meta.revision for id in ids} == {2}


async def test_one_that_is_changed_meanwhile_keeps_none_of_the_others(app: App) -> None:
    ids = [f"a{number}" for number in range(20)]
    await app.schedule_many(call("work", id=id, delay=HOUR) for id in ids)

    async def meanwhile() -> None:
        await app.schedule("work", "newer", id="a7", delay=HOUR)
        await app.cancel("a8")

    tally = Tally("cancel")
    async with counting(app) as (counted, store):
        store.meanwhile = meanwhile
        await bulk.change(counted, Selection(ids=ids), tally, lambda done: None)
    assert (tally.matched, tally.changed, tally.skipped) == (20, 18, 2)
    assert (await app.get("a7")).status.state == "live"


async def test_what_ran_since_is_left_among_others(app: App, work: Work) -> None:
    for id in ("a", "b", "c"):
        await app.schedule("work", id=id, delay=timedelta(0) if id == "b" else HOUR)
    tally = Tally("run_now", leaves_running=True)
    async with counting(app) as (counted, store):
        store.meanwhile = work.run
        await bulk.change(counted, Selection(ids=["a", "b", "c"]), tally, lambda done: None)
    assert (tally.changed, tally.skipped) == (2, 1)
    await work.run()
    assert work.runs == ["work"] * 3


async def test_one_that_is_not_there_is_told_before_anything_is_changed(app: App) -> None:
    await app.schedule("work", id="a", delay=HOUR)
    with pytest.raises(ActionNotFound, match="'b'"):
        await bulk.change(app, Selection(ids=["a", "b"]), Tally("cancel"), lambda done: None)
    assert (await app.get("a")).status.state == "live"
