"""The overview says what is late, of an installation in which much is held back on purpose."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from support.visits import Visitor

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.ops import fleet
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

LATE = timedelta(hours=6)
COUNT_MAX = 2
"""Where counting stops; fewer than are held."""


@pytest.fixture
async def worker(app: App, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """One that is there; four of five actions are held back by a limit for a day."""
    monkeypatch.setattr(fleet, "DUE_COUNT_MAX", COUNT_MAX)

    @app.action("work")
    async def work() -> None: ...

    await app.limits.set("key:slow", "1/24h")
    for number in range(5):
        await app.schedule("work", id=f"held:{number}", limit="slow")
    worker = Worker(app)
    await worker.run_due()
    return worker


async def said_after(waited: timedelta, worker: Worker, clock: ManualClock, visitor: Visitor) -> str:
    """The verdict; no worker does anything meanwhile, but tells that it is there."""
    clock.advance(waited)
    await worker.minutes.step()
    page = await visitor.read("/")
    return page.partition('aria-hidden="true">')[2].partition("</p>")[0]


async def test_what_only_a_gate_holds_is_late_on_purpose(worker: Worker, clock: ManualClock, visitor: Visitor) -> None:
    assert "All is well: nothing is late, 1 worker." in await said_after(LATE, worker, clock, visitor)


async def test_what_no_gate_holds_is_late_however_much_is_held_beside_it(
    worker: Worker, clock: ManualClock, visitor: Visitor
) -> None:
    await visitor.app.schedule("work", id="open")
    said = await said_after(LATE, worker, clock, visitor)
    assert "Trouble: the oldest that no gate holds has waited for 6 h 0 min." in said


async def test_what_no_worker_has_a_handler_for_is_named(worker: Worker, clock: ManualClock, visitor: Visitor) -> None:
    await visitor.app.schedule("elsewhere", id="parked")
    await worker.run_due()
    said = await said_after(LATE, worker, clock, visitor)
    assert "Trouble: no worker has the handler of what has waited for 6 h 0 min: elsewhere." in said
    visitor.app.action("elsewhere")(lambda: None)
    said = await said_after(timedelta(minutes=1), worker, clock, visitor)
    assert "Trouble: the oldest that no gate holds has waited for 6 h 1 min." in said


async def test_the_api_tells_the_ages_apart(worker: Worker, clock: ManualClock, visitor: Visitor) -> None:
    begun = clock.now()
    await visitor.app.schedule("elsewhere", id="parked", delay=timedelta(seconds=1))
    clock.advance(timedelta(seconds=1))
    await worker.run_due()
    await visitor.app.schedule("work", id="open", delay=timedelta(seconds=1))
    clock.advance(timedelta(seconds=5))
    told = (await visitor.open("/api/v1/overview")).json()
    ages = [datetime.fromisoformat(told[f"oldest_{kind}_at"]) - begun for kind in ("due", "parked", "open")]
    assert ages == [timedelta(seconds=after) for after in (0, 1, 2)]
