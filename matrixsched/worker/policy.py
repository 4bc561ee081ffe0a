"""The numbers a worker lives by, and the relations between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta

from matrixsched.errors import ConfigurationError, shown
from matrixsched.rules.action import State
from matrixsched.rules.gates import LOOK_AGAIN
from matrixsched.rules.queues import (
    BATCH_SIZE_DEFAULT,
    BATCH_SIZE_MAX,
    VISIBILITY_DEFAULT,
    VISIBILITY_MAX,
    VISIBILITY_MIN,
)
from matrixsched.rules.retention import KEEP_DEFAULT
from matrixsched.rules.times import DURATION_MAX

ATTEMPT_LEASE_MIN = timedelta(milliseconds=100)
"""Less is a slip of units."""
ATTEMPT_LEASE_MAX = timedelta(minutes=10)
"""No worker's lease reaches further; so whoever tidies up knows one that the database's clock left behind."""
SLOTS_AHEAD_MAX = timedelta(seconds=10)
"""Slots that lie much further ahead are taken for those of a clock that was set back, and given out again."""
REQUESTS_KEPT_MIN = timedelta(minutes=5)
"""Well over the longest time for which a statement, its twin or a patient caller can be under way."""

PROCESSORS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPolicy:
    concurrency: int = 100
    """Handlers at once; synchronous ones take a thread each."""
    shard_lease: timedelta = timedelta(seconds=10)
    heartbeat: timedelta = timedelta(seconds=3)
    attempt_lease: timedelta = timedelta(seconds=10)
    lease_margin: timedelta = timedelta(seconds=1)
    """How long before the end of a lease it is no longer trusted."""
    rest_max: timedelta = timedelta(seconds=1)
    """The longest rest between two looks for work."""
    hold_max: timedelta = timedelta(milliseconds=250)
    """The longest time a shard is held."""
    batch_max: int = 500
    suspects_max: int = 1
    timeout_grace: timedelta = timedelta(seconds=5)
    """How long after its limit a cancelled handler may take to end before its slot counts as leaked."""
    stop_grace: timedelta = timedelta(seconds=30)
    """How long handlers may go on after the worker was asked to stop."""
    farewell: timedelta = timedelta(seconds=5)
    """How long the last writes may take; a database that is away must not hang the exit."""
    leaked_max: float = 0.5
    """The share of slots that may leak before the worker gives up."""
    slots_ahead: timedelta = timedelta(milliseconds=100)
    """How far ahead of their time the slots of a limit are taken: more together cost less, and a crash loses more.
    Further where the database takes long to answer, and never further than a third of attempt_lease."""
    look_again: timedelta = LOOK_AGAIN
    """How long a lane before a gate is left alone at most, whatever it waits for."""
    history_max: int = 50
    """How many attempts that went wrong are remembered of an action."""
    keep_done: timedelta = KEEP_DEFAULT[State.DONE]
    """How long actions stay after they ended well; the next ones: after they ended otherwise."""
    keep_cancelled: timedelta = KEEP_DEFAULT[State.CANCELLED]
    keep_expired: timedelta = KEEP_DEFAULT[State.EXPIRED]
    keep_failed: timedelta = KEEP_DEFAULT[State.FAILED]
    keep_quarantined: timedelta = KEEP_DEFAULT[State.QUARANTINED]
    keep_requests: timedelta = timedelta(hours=1)
    keep_audit: timedelta = timedelta(days=90)
    """How long a call that is sent again is known as one that was carried out."""
    tidy_every: timedelta = timedelta(seconds=30)
    """How often old actions, requests and dead rows are looked for, by one worker of all."""
    tidy_batch: int = 500
    """How many of a kind are tidied away in a transaction."""
    processors: int = 1
    """Batches of queues that are handled at once; none: the queues are left to other workers."""
    queue_batch_size: int = BATCH_SIZE_DEFAULT
    """Tasks at most in a batch, where neither the store nor the handler says so; so is the next one."""
    visibility_timeout: timedelta = VISIBILITY_DEFAULT
    """How soon others have the tasks of a worker that died; prolonged while a batch is worked on."""
    queues_idle_until_told: bool = False
    """Whether no queue is looked at before a manager has said which."""

    @property
    def retention(self) -> Mapping[State, timedelta]:
        """How long actions are kept after they ended, by how they ended."""
        return {
            State.DONE: self.keep_done,
            State.CANCELLED: self.keep_cancelled,
            State.EXPIRED: self.keep_expired,
            State.FAILED: self.keep_failed,
            State.QUARANTINED: self.keep_quarantined,
        }

    def __post_init__(self) -> None:
        # What is not even of its type cannot be compared with anything.
        faults = list(_misfits(self)) or list(_faults(self))
        if faults:
            raise ConfigurationError(faults)


_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "timedelta": ((timedelta,), "a timedelta"),
    "bool": ((bool,), "True or False"),
}


def _misfits(policy: WorkerPolicy) -> Iterator[str]:
    for one in fields(policy):
        value, kind = getattr(policy, one.name), str(one.type)
        types, choice = _KINDS[kind]
        if not isinstance(value, types) or isinstance(value, bool) and kind != "bool":
            yield f"{one.name} is {shown(value)}: choose {choice}"


def _microseconds(duration: timedelta) -> int:
    """To be multiplied: three times a duration may be more than a duration can be."""
    return duration // timedelta.resolution


def _faults(policy: WorkerPolicy) -> list[str]:
    second = timedelta(seconds=1)
    checks = [
        (1 <= policy.concurrency <= 100_000, f"concurrency is {policy.concurrency}: choose 1 to 100000"),
        (1 <= policy.batch_max <= 10_000, f"batch_max is {policy.batch_max}: choose 1 to 10000"),
        (1 <= policy.suspects_max <= 100_000, f"suspects_max is {policy.suspects_max}: choose 1 to 100000"),
        (
            _microseconds(policy.heartbeat) * 3 <= _microseconds(policy.shard_lease),
            f"heartbeat ({policy.heartbeat / second:g} s) must be at most a third of "
            f"shard_lease ({policy.shard_lease / second:g} s): lower heartbeat or raise shard_lease",
        ),
        (
            _microseconds(policy.lease_margin) * 3 < _microseconds(policy.attempt_lease),
            f"lease_margin ({policy.lease_margin / second:g} s) must be less than a third of "
            f"attempt_lease ({policy.attempt_lease / second:g} s): lower lease_margin or raise attempt_lease",
        ),
        (
            policy.hold_max < policy.shard_lease / 2,
            f"hold_max ({policy.hold_max / second:g} s) must be less than half of "
            f"shard_lease ({policy.shard_lease / second:g} s): lower hold_max or raise shard_lease",
        ),
        (0 < policy.leaked_max <= 1, f"leaked_max is {policy.leaked_max}: choose a share between 0 and 1"),
        (
            not timedelta(0) < policy.attempt_lease < ATTEMPT_LEASE_MIN,
            f"attempt_lease ({policy.attempt_lease / second:g} s) must be at least {ATTEMPT_LEASE_MIN / second:g} s: "
            "otherwise others would take attempts over before they have begun",
        ),
        (
            policy.attempt_lease <= ATTEMPT_LEASE_MAX,
            f"attempt_lease ({policy.attempt_lease / second:g} s) must be at most {ATTEMPT_LEASE_MAX / second:g} s: "
            "it is prolonged while a handler runs, and is how long an attempt lies still after a crash",
        ),
        (
            policy.slots_ahead <= SLOTS_AHEAD_MAX,
            f"slots_ahead ({policy.slots_ahead / second:g} s) must be at most {SLOTS_AHEAD_MAX / second:g} s",
        ),
        *(
            (timedelta(0) <= keep <= DURATION_MAX, f"keep_{state} is {keep}: choose zero to {DURATION_MAX.days} days")
            for state, keep in policy.retention.items()
        ),
        (
            REQUESTS_KEPT_MIN <= policy.keep_requests <= DURATION_MAX,
            f"keep_requests ({policy.keep_requests / second:g} s) must be at least {REQUESTS_KEPT_MIN / second:g} s: "
            "a call that is sent again within that time must be known",
        ),
        (
            timedelta(0) <= policy.keep_audit <= DURATION_MAX,
            f"keep_audit is {policy.keep_audit}: choose zero to {DURATION_MAX.days} days",
        ),
        (
            0 <= policy.processors <= PROCESSORS_MAX,
            f"processors is {policy.processors}: choose 0 to {PROCESSORS_MAX}",
        ),
        (
            1 <= policy.queue_batch_size <= BATCH_SIZE_MAX,
            f"queue_batch_size is {policy.queue_batch_size}: choose 1 to {BATCH_SIZE_MAX}",
        ),
        (
            VISIBILITY_MIN <= policy.visibility_timeout <= VISIBILITY_MAX,
            f"visibility_timeout ({policy.visibility_timeout / second:g} s) must be between "
            f"{VISIBILITY_MIN / second:g} s and {VISIBILITY_MAX / second:g} s",
        ),
        (1 <= policy.history_max <= 1_000_000, f"history_max is {policy.history_max}: choose 1 to 1000000"),
        (1 <= policy.tidy_batch <= 10_000, f"tidy_batch is {policy.tidy_batch}: choose 1 to 10000"),
    ]
    return [fault for holds, fault in checks if not holds] + list(_absurd_durations(policy))


_DAY = timedelta(days=1)
_MAY_BE_ZERO = ("lease_margin", "timeout_grace", "stop_grace", "slots_ahead")
_SHORT = (
    "shard_lease",
    "heartbeat",
    "attempt_lease",
    "hold_max",
    "rest_max",
    "farewell",
    "look_again",
    "tidy_every",
    *_MAY_BE_ZERO,
)


def _absurd_durations(policy: WorkerPolicy) -> Iterator[str]:
    """What a slip of units or of the finger makes of a duration."""
    for name in _SHORT:
        duration: timedelta = getattr(policy, name)
        if not duration and name not in _MAY_BE_ZERO:
            yield f"{name} must be more than zero: raise it"
        elif not timedelta(0) <= duration <= _DAY:
            yield f"{name} is {duration.total_seconds():g} s: choose at most a day, and not less than nothing"
