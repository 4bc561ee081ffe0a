"""What many are asked to do is done to what was seen: whoever was started since is not run once more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from matrixsched import Action, App, Retry, every
from matrixsched.clock import ManualClock
from matrixsched.ops import bulk
from matrixsched.ops.bulk import Look, Selection, Tally
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@dataclass
class Late:
    """One action, and what becomes of it between the look and the change."""

    action: Action
    meanwhile: Callable[[], Awaitable[object]]
    in_words: str = "one"
    is_complete: bool = True

    async def of(self, app: App) -> AsyncIterator[Action]:
        await self.meanwhile()
        yield self.action


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
