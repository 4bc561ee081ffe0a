"""When to try a failed action again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from matrixsched.rules.times import check_duration, check_integer, check_number

ATTEMPTS_MAX = 1_000_000
INTERRUPTIONS_BEFORE_SUSPICION = 2
"""From the second interruption on, an action may itself be what kills its process: it is then run as a suspect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often and how soon a failed attempt is tried again.

    The n-th retry waits `first_delay * factor ** (n - 1)`, at least `min_delay`, at most `max_delay`, of which a random
    part of up to `jitter` is taken off. Attempts that were interrupted (the worker died) are no failures: they have the
    budget `max_interruptions`, after which the action is quarantined. Zero means: never run it twice after a crash.
    """

    max_attempts: int | None = 5
    """None: without end."""
    first_delay: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    min_delay: timedelta = timedelta(0)
    max_delay: timedelta = timedelta(hours=1)
    jitter: float = 0.1
    max_interruptions: int = 4

    def __post_init__(self) -> None:
        if self.max_attempts is not None:
            check_integer("max_attempts", self.max_attempts, least=1, most=ATTEMPTS_MAX)
        check_integer("max_interruptions", self.max_interruptions, least=0, most=ATTEMPTS_MAX)
        check_number("factor", self.factor, least=1, most=1000)
        check_number("jitter", self.jitter, least=0, most=1)
        for argument in ("first_delay", "min_delay", "max_delay"):
            check_duration(argument, getattr(self, argument))


def retry_delay(policy: Retry, failures: int, spread: float) -> timedelta | None:
    """How long to wait after the `failures`-th failure in a row, or None to give up.

    `spread` in [0, 1) is drawn by the caller, so equal inputs give equal answers.
    """
    is_last = policy.max_attempts is not None and failures >= policy.max_attempts
    return None if is_last else _delay(policy, failures, spread)


def first_delay(policy: Retry, spread: float) -> timedelta:
    """How long to wait before the first retry, however many there may be."""
    return _delay(policy, 1, spread)


def _delay(policy: Retry, failures: int, spread: float) -> timedelta:
    # 2 ** 1000 seconds do not fit a timedelta, so the comparison is made in floats.
    wait_s = policy.first_delay.total_seconds() * policy.factor ** min(failures - 1, 100)
    longest_s = policy.max_delay.total_seconds()
    wait_s = min(max(wait_s, policy.min_delay.total_seconds()), longest_s)
    return timedelta(seconds=wait_s * (1 - policy.jitter * spread))


def is_suspect(interruptions: int) -> bool:
    """Whether an action was interrupted so often that it may be the cause."""
    return interruptions >= INTERRUPTIONS_BEFORE_SUSPICION
