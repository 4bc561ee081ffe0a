"""A handler under way: what is known of it, and the answers that follow from that."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, TypeVar

import anyio

from matrixsched.context import Context
from matrixsched.errors import BadInput
from matrixsched.events import AttemptEnded
from matrixsched.handlers import Handler
from matrixsched.rules.action import Attempt
from matrixsched.rules.outcome import Ending, Stopped, TimedOut, Verdict
from matrixsched.worker.leases import Held

T = TypeVar("T")


class Cause(Enum):
    """Why a handler was cancelled."""

    TIMEOUT = auto()
    LOST = auto()
    STOP = auto()


class Run:
    """A handler under way."""

    __slots__ = (
        "abandoned",
        "cause",
        "deadline",
        "given_up",
        "handler",
        "held",
        "in_thread",
        "leaked",
        "scope",
        "started_at",
        "timeout",
    )

    def __init__(
        self, held: Held, handler: Handler[..., Any], timeout: timedelta, started_at: float, scope: anyio.CancelScope
    ) -> None:
        """`scope` is cancelled for its sake; who made it leaves it then, before anybody else is run in it."""
        self.held = held
        self.handler = handler
        self.timeout = timeout
        self.started_at = started_at
        self.deadline = started_at + timeout.total_seconds()
        self.scope = scope
        self.cause: Cause | None = None
        self.leaked = False
        self.in_thread = False
        """The handler is a plain function, and its thread has begun and not ended."""
        self.given_up = False
        """Cancelled for good: a thread that has not begun must not begin any more."""
        self.abandoned = False
        """Nobody waits any longer for its thread, which goes on."""


def context_of(attempt: Attempt, deadline: datetime) -> Context:
    claim = attempt.claim
    return Context(
        id=claim.action_id,
        guid=claim.guid,
        handler=attempt.handler,
        version=attempt.version,
        attempt=claim.attempt,
        tick=attempt.tick,
        tick_at=attempt.tick_at,
        scheduled_at=attempt.due_at,
        deadline=deadline,
        failures=attempt.tick_failures,
        interruptions=attempt.interruptions,
        trace=attempt.terms.trace,
    )


def ending_of(run: Run) -> Ending | None:
    """What became of a handler that was cancelled."""
    match run.cause:
        case Cause.TIMEOUT:
            return TimedOut(run.timeout)
        case Cause.STOP:
            return Stopped()
        case _:
            return None  # lost: the row tells the next owner that this attempt was interrupted


def ended(attempt: Attempt, verdict: Verdict, now: datetime, *, run_s: float) -> AttemptEnded:
    """What is told of an attempt that has come to its end now."""
    claim = attempt.claim
    return AttemptEnded(
        claim.action_id,
        claim.guid,
        attempt.handler,
        claim.attempt,
        verdict.outcome,
        verdict.state,
        verdict.error,
        run_s,
        now - attempt.due_at - timedelta(seconds=run_s),
        verdict.next_at,
        attempt.template,
    )


def is_cancelled(run: Run) -> bool:
    return run.scope.cancel_called or anyio.current_effective_deadline() == float("-inf")


def left_open(scope: anyio.CancelScope) -> list[anyio.CancelScope]:
    """The scopes that were entered right inside of this one, in this task, and never left.

    anyio does not tell which they are, so this looks where it keeps them.
    """
    inside = getattr(scope, "_child_scopes", ())
    return [one for one in inside if id(getattr(one, "_host_task", None)) == anyio.get_current_task().id]


def leave(scope: anyio.CancelScope) -> None:
    """Leave a scope together with those inside of it that were never left.

    Otherwise the task would stay in them: their deadlines would cancel whatever is run in its slot later.
    """
    for inner in left_open(scope):
        leave(inner)
    with suppress(RuntimeError):
        scope.__exit__(None, None, None)


def describe(error: BaseException) -> str:
    """What is stored of an error: its kind and message, and where it was raised. It raises nothing itself."""
    try:
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        places = [f"{frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in reversed(frames)]
        return f"{type(error).__name__}: {_message(error)} [in {' < '.join(places)}]"
    except Exception:
        return f"{type(error).__name__}, of which no more can be told"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as another:  # an error is text of somebody else's making, too
        return f"(its message cannot be shown: {type(another).__name__})"


def called(function: Callable[..., T], *arguments: object) -> T:
    """What a handler that runs in a thread returns. GeneratorExit becomes an error like any other: thrown into whoever
    awaits the thread, Python would take it for the end of all of them, and so of the worker."""
    try:
        return function(*arguments)
    except GeneratorExit:
        raise BadInput("the handler raised GeneratorExit: raise an exception that says what went wrong") from None
