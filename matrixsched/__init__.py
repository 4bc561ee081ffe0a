"""Scheduled actions from the SQL database you already have: on time, at least once, whatever crashes."""

from __future__ import annotations

from matrixsched.app import App
from matrixsched.calls import Call, Scheduled, ScheduledMany, call
from matrixsched.context import Context
from matrixsched.gates.throughput import Throughput, ThroughputStatistics
from matrixsched.rules.action import Action, Outcome, PastAttempt, State
from matrixsched.rules.exclusions import Daily, Exclusion, Period
from matrixsched.rules.http import retry_after
from matrixsched.rules.limits import Limit
from matrixsched.rules.outcome import Cancel, Done, RetryAt, SlowDown
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import CatchUp, Cron, Every, Misfire, Repeat, catch_up, cron, every, upcoming
from matrixsched.semaphores import Acquired, SemaphoreBalance, TaskSemaphore, TryRelease

__version__ = "0.1.0"

__all__ = [
    "Acquired",
    "Action",
    "App",
    "Call",
    "Cancel",
    "CatchUp",
    "Context",
    "Cron",
    "Daily",
    "Done",
    "Every",
    "Exclusion",
    "Limit",
    "Misfire",
    "Outcome",
    "PastAttempt",
    "Period",
    "Repeat",
    "Retry",
    "RetryAt",
    "Scheduled",
    "ScheduledMany",
    "SemaphoreBalance",
    "SlowDown",
    "State",
    "TaskSemaphore",
    "Throughput",
    "ThroughputStatistics",
    "TryRelease",
    "call",
    "catch_up",
    "cron",
    "every",
    "retry_after",
    "upcoming",
]
