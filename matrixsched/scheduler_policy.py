"""How patient the scheduler is, and how much it sends at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from matrixsched.coalescer import BATCH_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerPolicy:
    lock_timeout: timedelta = timedelta(milliseconds=100)
    """How long a statement that carries many callers' rows waits for somebody's lock."""
    lock_patience: timedelta = timedelta(seconds=5)
    """How long a single call then waits, on its own."""
    outcome_patience: timedelta = timedelta(seconds=30)
    """How long a call whose outcome is unknown is sent again before that is reported."""
    tell_interval_s: float = 0.01
    """Under load, workers are told of news at most this often."""
    tell_ahead: timedelta = timedelta(seconds=1)
    """News of actions due later than this can wait until workers look by themselves."""
    tell_in_callers_transaction: bool = True
    batch_max: int = BATCH_MAX
