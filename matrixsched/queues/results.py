"""What a handler says of its batch.

    None                    all of it is done; of a handler that takes the storage: nothing, it has settled what it has
    Done(), RetryAt(...)    the same for every task
    [Done(), RetryAt(...)]  one result for each task, in the order of the batch
    HandlerStats(...)       it has settled them through the storage; these are its figures

What was settled through the storage stays as it is, and what nobody settled comes back when its visibility timeout is
over. An exception settles nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from matrixsched.errors import BadInput
from matrixsched.queues.tasks import QueueTask
from matrixsched.rules.outcome import Done, RetryAt
from matrixsched.rules.retry import ATTEMPTS_MAX, Retry, retry_delay
from matrixsched.rules.times import check_duration, check_integer

__all__ = ["BatchResult", "DeadLetter", "Done", "HandlerStats", "ItemResult", "RetryAt", "results_of", "retry_or_bury"]


COUNT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Nothing can be done with this task: set it aside, with a reason for a person to read."""

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise BadInput(f"DeadLetter.reason must be a string, not {type(self.reason).__name__}")
        if not self.reason.strip():
            raise BadInput("DeadLetter.reason is empty: say in words why nothing can be done with the task")


@dataclass(frozen=True, slots=True)
class HandlerStats:
    """What a handler that settled its tasks itself has to tell."""

    processed: int = 0
    errors: int = 0
    retried: int = 0
    """Those that it let come back, as far as it knows; what counts is what the storage said of them."""
    duration: timedelta = timedelta(0)
    """How long it was at work, if that is not as long as it ran: whoever manages plans with it. Nothing: as it ran."""
    last_error: str | None = None
    """In the handler's own words: it reaches subscribers to BatchEnded, and neither logs nor metrics."""

    def __post_init__(self) -> None:
        for name in ("processed", "errors", "retried"):
            check_integer(f"HandlerStats.{name}", getattr(self, name), least=0, most=COUNT_MAX)
        check_duration("HandlerStats.duration", self.duration)
        if self.last_error is not None and not isinstance(self.last_error, str):
            raise BadInput(f"HandlerStats.last_error must be a string, not {type(self.last_error).__name__}")


ItemResult: TypeAlias = Done | RetryAt | DeadLetter
BatchResult: TypeAlias = HandlerStats | Sequence[ItemResult] | ItemResult | None


def results_of(returned: object, count: int, *, takes_storage: bool) -> list[ItemResult | None]:
    """What is to become of each task of a batch; None: nothing that we would do. BadInput if it makes no sense."""
    if returned is None:
        # Who was not given the storage had no other way to say that they are done.
        return [None if takes_storage else Done()] * count
    if isinstance(returned, HandlerStats):
        return [None] * count
    if isinstance(returned, Done | RetryAt | DeadLetter):
        return [returned] * count
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes | bytearray):
        raise BadInput(f"the handler returned {_kind(returned)}: {_ALLOWED}")
    if strangers := [one for one in returned if not isinstance(one, Done | RetryAt | DeadLetter)]:
        raise BadInput(f"the handler returned a list with {_kind(strangers[0])} in it: {_ALLOWED}")
    if len(returned) != count:
        raise BadInput(f"the handler returned {len(returned)} results for {count} tasks: return one for each, in order")
    return list(returned)


_ALLOWED = "return Done(), RetryAt(when), DeadLetter(reason), a list of one for each task, HandlerStats(...) or None"


def _kind(value: object) -> str:
    return f"an object of type {type(value).__name__}" if value is not None else "None"


def retry_or_bury(
    task: QueueTask,
    error: BaseException,
    *,
    max_attempts: int = 10,
    first_delay: timedelta = timedelta(seconds=1),
    max_delay: timedelta = timedelta(hours=1),
) -> RetryAt | DeadLetter:
    """The usual answer to an error of one task: later, each time twice as late, and in the end not any more.

    The reason holds only what kind of error it was: its message may hold what is nobody's business.
    """
    check_integer("max_attempts", max_attempts, least=1, most=ATTEMPTS_MAX)
    policy = Retry(
        max_attempts=max_attempts,
        first_delay=check_duration("first_delay", first_delay),
        max_delay=check_duration("max_delay", max_delay),
        jitter=0,
    )
    kind, failures = type(error).__name__, task.attempts + 1
    delay = retry_delay(policy, failures, spread=0)
    if delay is None:
        return DeadLetter(f"{kind} at attempt {failures}, the last of {max_attempts}")
    return RetryAt(delay, kind)
