"""What workers have to do in the model: handlers whose outcomes the payload says, and their steps, made by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio.lowlevel
from pydantic import BaseModel

from fuzz.inputs import MIXED
from fuzz.sides import Side, register
from matrixsched import Acquired, App, Cancel, Context, Done, Retry, RetryAt, SlowDown, TryRelease
from matrixsched.queues import DeadLetter, ItemResult
from matrixsched.testing.clock import HastyClock
from matrixsched.worker import Worker, WorkerPolicy

SECOND = timedelta(seconds=1)
OUTCOMES = ("done", "fail", "retry", "cancel", "slow", "child")
POLICY = WorkerPolicy(slots_ahead=timedelta(0), tidy_every=timedelta(seconds=10), processors=2)


class Script(BaseModel):
    outcomes: list[str]
    """Of the first attempt, the second, and so on; the last one of all that follow."""


def register_with_crew(app: App) -> None:
    """What the fuzz has, and handlers that do something."""
    register(app)
    tell_small(app)

    @app.action("scripted", retry=Retry(max_attempts=3, first_delay=SECOND))
    async def scripted(script: Script, context: Context) -> object:
        match script.outcomes[min(context.attempt, len(script.outcomes)) - 1]:
            case "fail":
                raise RuntimeError("as the script says")
            case "retry":
                return RetryAt(5 * SECOND, reason="not yet")
            case "cancel":
                return Cancel("no longer wanted")
            case "slow":
                return SlowDown(30 * SECOND, reason="HTTP 429")
            case "child":
                await app.schedule("nothing", id=f"child of {context.id}", delay=SECOND)
        return Done()

    @app.queues.handler("mixed", batch_size=3)
    async def one_by_one(tasks: list[Any]) -> list[ItemResult]:
        return [_result(task) for task in tasks]

    @app.queues.handler("plain", batch_size=2, visibility=10 * SECOND)
    async def by_storage(tasks: list[Any], storage: Any) -> None:
        if any(task.attempts == 1 for task in tasks):
            raise RuntimeError("the second time it fails")
        await storage.retry([(task, 3 * SECOND) for task in tasks if task.attempts == 0])
        await storage.done([task for task in tasks if task.attempts > 1])


def _result(task: Any) -> ItemResult:
    match task.number % 4:
        case 1:
            return RetryAt(2 * SECOND)
        case 2:
            return DeadLetter(f"number {task.number} is not wanted")
    return Done()


def tell_small(app: App) -> None:
    """Who is told of the places of a semaphore: the first time of one task it fails; who is asked steps back."""

    @app.on_acquired("small")
    async def hand_out(event: Acquired, context: Context) -> None:
        if event.task_id == "t2" and context.attempt == 1:
            raise RuntimeError("not at the first time")

    @app.on_try_release("small")
    async def step_back(event: TryRelease) -> None:
        await (await app.semaphores.get("small")).step_back(event.task_id, hold=event.hold)


class HurriedClock(HastyClock):
    """Time that stands still also for whoever sleeps: it is shared with the other side."""

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()


class Crew:
    """The workers of one side."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._workers = [self._new(number) for number in range(2)]

    def _new(self, number: int) -> Worker:
        return Worker(self._side.app, POLICY, name=f"worker {number}", clock=HurriedClock(self._side.clock))

    async def step(self, name: str, number: int) -> object:
        """One step of one worker."""
        worker = self._workers[number]
        if name == "die":
            # It has claimed what it could, and nobody hears of it again.
            await worker.intake.step()
            self._workers[number] = self._new(number)
            return worker.runner.has_waiting
        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "run_due": worker.run_due,
            "balance": worker.balancing.step,
            "tidy": worker.tidying.step,
            "expire": worker.tidying.expire,
            "run_ready": worker.processors.run_ready,
            "report": worker.managing.report,
            "manage": worker.managing.manage,
        }
        return await steps[name]()


STEPS = ("run_due", "run_due", "die", "balance", "tidy", "expire", "run_ready", "report", "manage")
QUEUES = [queue.name for queue in MIXED.queues]
