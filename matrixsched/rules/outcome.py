"""What follows from how an attempt ended: one match, and nothing is written here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, assert_never

from matrixsched.errors import BadInput
from matrixsched.rules.action import Attempt, Outcome, State
from matrixsched.rules.lanes import handler_limit, key_limit
from matrixsched.rules.limits import check_slowable
from matrixsched.rules.queues import NewItem
from matrixsched.rules.rates import Rate, check_rate
from matrixsched.rules.retry import Retry, first_delay, retry_delay
from matrixsched.rules.schedule import is_misfire, next_tick
from matrixsched.rules.semaphore import semaphore_of
from matrixsched.rules.texts import storable
from matrixsched.rules.times import check_duration, check_time

UNREADABLE_DELAY = timedelta(seconds=10)
UNREADABLE_DELAY_MIN = timedelta(seconds=1)
EXPIRED_UNSTARTED = "expired before it could be started"
SLOW_DOWN_MIN = timedelta(seconds=1)
"""A service that says 429 and to come again at once, or at a time that has passed, is not asked at once for ever."""


@dataclass(frozen=True, slots=True)
class Done:
    """The handler did its work. Returning None means the same."""


@dataclass(frozen=True, slots=True)
class Delivered(Done):
    """What there is to do is done elsewhere: this becomes a task of a queue when the attempt is recorded."""

    item: NewItem


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Not now: try again at that time (or after that delay). Counts neither as success nor as failure."""

    when: datetime | timedelta
    reason: str = ""

    def __post_init__(self) -> None:
        _check_when("RetryAt.when", self.when)
        _check_reason("RetryAt.reason", self.reason)


@dataclass(frozen=True, slots=True)
class SlowDown:
    """Told to slow down, as by HTTP 429: try again then, and until then let no worker start what is under this limit.

    With `rate` it is only slowed down, to that. Counts neither as success nor as failure. It lasts at least a second,
    also if `until` has passed, and this action waits at least as long as before its first retry.
    """

    until: datetime | timedelta
    limit: str | None = None
    """None: the key of the action, if it has one, or else its handler: key:<key>, handler:<name>. An event of a
    semaphore is under neither: then it waits alone."""
    rate: Rate | str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        _check_when("SlowDown.until", self.until)
        if self.limit is not None:
            check_slowable(self.limit)
        if self.rate is not None:
            check_rate(self.rate)
        _check_reason("SlowDown.reason", self.reason)

    def lasting(self, now: datetime, least: timedelta = SLOW_DOWN_MIN) -> datetime | timedelta:
        """Until when, or for how long, but for no less than this."""
        if isinstance(self.until, timedelta):
            return max(self.until, least)
        return self.until if self.until - now >= least else least

    def limit_of(self, attempt: Attempt) -> str | None:
        """The limit that is told; None if there is nobody else to be told."""
        if self.limit is not None:
            return self.limit
        if semaphore_of(attempt.handler) is not None:
            return None
        return handler_limit(attempt.handler) if attempt.limit is None else key_limit(attempt.limit)


@dataclass(frozen=True, slots=True)
class Cancel:
    """The action has become pointless: end it, and its repetition."""

    reason: str = ""

    def __post_init__(self) -> None:
        _check_reason("Cancel.reason", self.reason)


def _check_when(what: str, when: object) -> None:
    if isinstance(when, timedelta):
        check_duration(what, when)
    else:
        check_time(what, when)


def _check_reason(what: str, reason: object) -> None:
    if not isinstance(reason, str):
        raise BadInput(f"{what} must be a string, not {type(reason).__name__}")


HandlerOutcome = Done | RetryAt | SlowDown | Cancel


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised."""

    error: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The handler was cancelled at its time limit."""

    limit: timedelta


@dataclass(frozen=True, slots=True)
class Stopped:
    """The worker had to stop before the handler ended."""


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """The handler was not called and never can be: set aside for a person to look at."""

    reason: str


@dataclass(frozen=True, slots=True)
class Expired:
    """Its time was over before it could be started."""


@dataclass(frozen=True, slots=True)
class Missed:
    """This tick was not started in time."""


Ending = HandlerOutcome | Failed | TimedOut | Stopped | Unrunnable | Expired | Missed


class Verdict(NamedTuple):
    """What to record about an attempt. `next_at` and `delay` are set only when the action stays live."""

    outcome: Outcome
    state: State
    tick: int
    tick_at: datetime
    tick_failures: int = 0
    next_at: datetime | None = None
    delay: timedelta | None = None
    error: str | None = None


def refusal(attempt: Attempt, policy: Retry, now: datetime, payload_version: int = 1) -> Ending | None:
    """Why this attempt must not call its handler, which takes payloads up to that version; None when it may."""
    if attempt.terms.unreadable is not None:
        return _left_to_newer(attempt, now, attempt.terms.unreadable)
    if attempt.expires_at is not None and now >= attempt.expires_at:
        return Expired()
    if attempt.interruptions > policy.max_interruptions:
        return Unrunnable(
            f"interrupted {attempt.interruptions} times in a row: it may be what ends its worker "
            f"(at most {policy.max_interruptions} are allowed)"
        )
    if _is_too_late(attempt, now):
        return Missed()
    stored_version = attempt.terms.payload_version or 1
    if stored_version > payload_version:
        why = (
            f"its payload is of version {stored_version}, which a newer worker takes: this one takes {payload_version}"
        )
        return _left_to_newer(attempt, now, why)
    return None


def _left_to_newer(attempt: Attempt, now: datetime, why: str) -> RetryAt:
    """Most likely this worker is the older one: leave the action to those who can read it, while they still may."""
    limits = [attempt.expires_at] if attempt.expires_at is not None else []
    if attempt.terms.start_within is not None:
        limits.append(attempt.tick_at + attempt.terms.start_within)
    half_way = [max((limit - now) / 2, UNREADABLE_DELAY_MIN) for limit in limits]
    return RetryAt(min([UNREADABLE_DELAY, *half_way]), why)


def _is_too_late(attempt: Attempt, now: datetime) -> bool:
    start_within, repeat = attempt.terms.start_within, attempt.terms.repeat
    if start_within is not None and now > attempt.tick_at + start_within:
        return True
    if repeat is None or _was_begun(attempt, repeat.jitter):
        return False  # it is tried again, not missed
    limited = start_within is not None
    return is_misfire(repeat, tick_at=attempt.tick_at, due_at=attempt.due_at, now=now, may_be_late=limited)


def _was_begun(attempt: Attempt, jitter: timedelta) -> bool:
    """Whether this tick has been tried before: it went wrong, or is due later than any first try of it."""
    went_wrong = attempt.tick_failures > 0 or attempt.interruptions > 0
    return went_wrong or attempt.due_at > attempt.tick_at + jitter


def judge_plainly(attempt: Attempt, ending: Ending) -> Verdict | None:
    """What to record if that depends on neither time nor chance, as most often; else None, and it is for `judge`."""
    if isinstance(ending, Done) and attempt.terms.repeat is None:
        return _end(attempt, Outcome.SUCCEEDED, State.DONE)
    return None


def judge(attempt: Attempt, ending: Ending, policy: Retry, now: datetime, spread: float) -> Verdict:
    """What to record. `now` is the database's time; `spread` in [0, 1) is drawn by the caller for the jitter."""
    match ending:
        case Done():
            return _tick_ended(attempt, Outcome.SUCCEEDED, State.DONE, now, spread)
        case RetryAt(when, reason):
            return _deferred(attempt, when, reason, now)
        case SlowDown(reason=reason):
            least = max(SLOW_DOWN_MIN, first_delay(policy, spread))
            return _deferred(attempt, ending.lasting(now, least), reason, now)
        case Cancel(reason):
            return _end(attempt, Outcome.CANCELLED, State.CANCELLED, error=reason or None)
        case Failed(error):
            return _failed(attempt, Outcome.FAILED, error, policy, now, spread)
        case TimedOut(limit):
            error = f"the handler was cancelled after its time limit of {limit.total_seconds():g} s"
            return _failed(attempt, Outcome.TIMED_OUT, error, policy, now, spread)
        case Stopped():
            return _again(attempt, Outcome.INTERRUPTED, now, delay=timedelta(0), error="the worker stopped")
        case Unrunnable(reason):
            return _end(attempt, Outcome.QUARANTINED, State.QUARANTINED, error=reason)
        case Expired():
            return _end(attempt, Outcome.EXPIRED, State.EXPIRED, error=EXPIRED_UNSTARTED)
        case Missed():
            return _tick_ended(attempt, Outcome.MISSED, State.EXPIRED, now, spread, error="not started in time")
        case _:
            assert_never(ending)


def _deferred(attempt: Attempt, when: datetime | timedelta, reason: str, now: datetime) -> Verdict:
    at = when if isinstance(when, datetime) else None
    delay = when if isinstance(when, timedelta) else None
    return _again(attempt, Outcome.RETRIED, now, at=at, delay=delay, error=reason or None)


def _failed(attempt: Attempt, outcome: Outcome, error: str, policy: Retry, now: datetime, spread: float) -> Verdict:
    failures = attempt.tick_failures + 1
    delay = retry_delay(policy, failures, spread)
    if delay is None:
        return _tick_ended(attempt, outcome, State.FAILED, now, spread, error=error)
    return _again(attempt, outcome, now, delay=delay, error=error, tick_failures=failures)


def _tick_ended(
    attempt: Attempt, outcome: Outcome, final: State, now: datetime, spread: float, error: str | None = None
) -> Verdict:
    """The tick is over: a repeating action goes on to its next one, another is finished."""
    repeat = attempt.terms.repeat
    if repeat is None:
        return _end(attempt, outcome, final, error=error)
    following = next_tick(repeat, attempt.tick_at, now)
    if following is None:
        return _end(attempt, outcome, State.DONE, error=error)
    due_at = following + repeat.jitter * spread
    if attempt.expires_at is not None and due_at >= attempt.expires_at:
        return _end(attempt, outcome, State.DONE if final is State.DONE else State.EXPIRED, error=error)
    return Verdict(
        outcome=outcome,
        state=State.LIVE,
        tick=attempt.tick + 1,
        tick_at=following,
        next_at=due_at,
        error=_storable(error),
    )


def _again(
    attempt: Attempt,
    outcome: Outcome,
    now: datetime,
    *,
    at: datetime | None = None,
    delay: timedelta | None = None,
    error: str | None = None,
    tick_failures: int | None = None,
) -> Verdict:
    """The same tick once more, unless it would expire first."""
    moment = at if at is not None else now + (delay or timedelta(0))
    if attempt.expires_at is not None and moment >= attempt.expires_at:
        return _end(attempt, outcome, State.EXPIRED, error=error)
    return Verdict(
        outcome=outcome,
        state=State.LIVE,
        tick=attempt.tick,
        tick_at=attempt.tick_at,
        tick_failures=attempt.tick_failures if tick_failures is None else tick_failures,
        next_at=at,
        delay=delay,
        error=_storable(error),
    )


def _end(attempt: Attempt, outcome: Outcome, state: State, error: str | None = None) -> Verdict:
    return Verdict(outcome=outcome, state=state, tick=attempt.tick, tick_at=attempt.tick_at, error=_storable(error))


def _storable(error: str | None) -> str | None:
    return None if error is None else storable(error)
