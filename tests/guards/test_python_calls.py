"""How many Python functions are called for an action: what a worker's processor time goes by, without a clock."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from types import FrameType

import anyio
import pytest
from anyio.lowlevel import checkpoint
from support.by_hand import drain
from support.counting import counted_app, form_of, in_this_thread
from support.elsewhere import schedule_elsewhere

from matrixsched import App, call
from matrixsched.clock import ManualClock
from matrixsched.rules.names import shard_of
from matrixsched.store.news import News
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

# Whoever makes it less lowers these: about 15 % above what is measured, which stands beside them.
CALLS_TO_SCHEDULE_MAX = {"sqlite": 66, "postgresql": 56}  # 56.9, 48.0
CALLS_TO_RUN_MAX = {"sqlite": 108, "postgresql": 71}  # 93.5, 61.7
"""For one action of a thousand, in either form. The first counts the database's side, too; the other's is in C and in
the server."""

CALLS_FOR_A_LONE_CALL_MAX = {"sqlite": 285, "postgresql": 355, "distributed": 855}  # 257, 320, 742
CALLS_FOR_A_LONE_START_MAX = {"sqlite": 345, "postgresql": 350, "distributed": 390}  # 317, 322, 358
"""From the call of `schedule` to its answer; from the news to the call of the handler. After a rest, when nothing of it
is in a cache, each takes a microsecond and more of the latency."""

ACTIONS = 1_000


class Calls:
    """Functions of Python that were called, and generators and coroutines gone on with, in this thread."""

    def __init__(self) -> None:
        self._called: Counter[str] = Counter()
        self._actions = ACTIONS

    async def during(self, work: Callable[[], Awaitable[object]], *, actions: int = ACTIONS) -> float:
        """For each of so many actions."""
        self._called.clear()
        sys.setprofile(self._note)
        try:
            await work()
        finally:
            self.stop()
        self._actions = actions
        return self._called.total() / actions

    def stop(self) -> None:
        """Count no more, although the work goes on."""
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            code = frame.f_code
            self._called[f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno} {code.co_name}"] += 1

    def told(self, what: str, measured: float, most: float) -> str:
        often = "\n".join(f"{count / self._actions:8.2f} {name}" for name, count in self._called.most_common(25))
        return f"{measured:.1f} Python functions are called to {what}, and may be {most}. Most often:\n{often}"


async def test_an_action_takes_no_more_python_than_before(database_url: str) -> None:
    clock, calls = ManualClock(), Calls()
    async with counted_app(database_url, clock, shards=4, hop=in_this_thread) as (app, _):

        @app.action("work")
        async def work(number: int) -> None: ...

        worker, dialect = Worker(app), app.store.dialect
        await put(app, "warm-up")
        await drain(worker, clock)

        measured, most = await calls.during(lambda: put(app, "due")), CALLS_TO_SCHEDULE_MAX[dialect]
        assert measured <= most, calls.told("schedule an action", measured, most)
        measured, most = await calls.during(lambda: drain(worker, clock)), CALLS_TO_RUN_MAX[dialect]
        assert measured <= most, calls.told("run an action", measured, most)


@pytest.mark.direct("what is not prepared takes more of them")
async def test_a_lone_action_takes_no_more_python_than_before(database_url: str) -> None:
    clock, calls = ManualClock(), Calls()
    async with counted_app(database_url, clock, shards=4, hop=in_this_thread) as (app, _):
        started = anyio.Event()

        @app.action("work")
        async def work() -> None:
            calls.stop()
            started.set()

        worker, form = Worker(app), form_of(app)
        for _ in range(10):
            await app.schedule("work")
            await drain(worker, clock)
        started = anyio.Event()
        await schedule_elsewhere(app, "lone")

        async def start() -> None:
            worker._hear(News.ACTIONS, shard_of("lone", 4))
            await worker.intake.step()
            await started.wait()

        async with anyio.create_task_group() as slots:
            worker.runner.open_slots(slots)
            await checkpoint()  # one waits there for the next attempt
            measured, most = await calls.during(start, actions=1), CALLS_FOR_A_LONE_START_MAX[form]
            worker.runner.open_slots(None)
        assert measured <= most, calls.told("start a lone action", measured, most)
        measured = await calls.during(lambda: app.schedule("work"), actions=1)
        most = CALLS_FOR_A_LONE_CALL_MAX[form]
        assert measured <= most, calls.told("schedule a lone action", measured, most)


async def put(app: App, prefix: str) -> None:
    await app.schedule_many(call("work", number, id=f"{prefix}-{number}") for number in range(ACTIONS))
