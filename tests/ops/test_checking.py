"""What is looked at where little lives among much that has finished."""

from __future__ import annotations

from datetime import timedelta

import pytest

from matrixsched import App, call
from matrixsched.clock import ManualClock
from matrixsched.ops import checking
from matrixsched.ops.checking import unknown_handlers
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(("looks", "found"), [(20, (2, {"unknown": 1})), (1, (0, {}))])
async def test_few_that_live_are_looked_for_step_by_step_and_not_for_ever(
    app: App, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, looks: int, found: tuple[int, dict[str, int]]
) -> None:
    monkeypatch.setattr(checking, "LOOK_MAX", 40)
    monkeypatch.setattr(checking, "LOOKS", looks)

    @app.action("known")
    async def known() -> None: ...

    await app.schedule_many(call("known", id=f"done{number}") for number in range(200))
    while await Worker(app).run_due():
        clock.advance(HOUR)
    await app.schedule("known", id="y", delay=HOUR)
    await app.schedule("unknown", id="z", delay=HOUR)
    assert await unknown_handlers(app) == found


async def test_no_more_is_looked_at_than_is_needed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SAMPLE", 7)
    await app.schedule_many(call("unknown", id=f"a{number}", delay=HOUR) for number in range(20))
    assert await unknown_handlers(app) == (7, {"unknown": 7})
