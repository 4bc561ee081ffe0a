"""Scheduled actions from the SQL database you already have: on time, at least once, whatever crashes."""

from __future__ import annotations

from matrixsched.app import App
from matrixsched.calls import Call, Scheduled, ScheduledMany, call
from matrixsched.context import Context
from matrixsched.rules.action import Action, Outcome, PastAttempt, State
from matrixsched.rules.outcome import Cancel, Done, RetryAt
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import every

__version__ = "0.1.0"

__all__ = [
    "Action",
    "App",
    "Call",
    "Cancel",
    "Context",
    "Done",
    "Outcome",
    "PastAttempt",
    "Retry",
    "RetryAt",
    "Scheduled",
    "ScheduledMany",
    "State",
    "call",
    "every",
]
