"""The time of a decision, in distributed form: asked first, of the node that clients connect to, and given to what is
asked then. So the clocks of other nodes decide nothing.

A statement may be long on its way. What it would take, claim or prolong by a time of long ago, somebody else may have
by now; so it is also told until when it is in time, and judges that by the clock of the node that was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from matrixsched.store.transition import Ask, Conversation, Transition

T = TypeVar("T")

LATE_AFTER = timedelta(seconds=3)
"""A statement that knows of no lease is late so long after its time was asked."""


def timed(transition: Transition[T], now: Ask) -> Transition[T]:
    """A transition that asks for the time before the first statement that wants it, unless it has asked by itself, or
    whoever asks has told it. One that is long under way asks for it again."""
    return replace(transition, begin=lambda: _timed(transition.begin(), now))


def _timed(conversation: Conversation[T], asking: Ask) -> Conversation[T]:
    now: datetime | None = None
    try:
        ask = next(conversation)
        while True:
            if ask.statement.name != asking.statement.name and ask.parameters.get("now", asking) is None:
                if now is None:
                    (row,) = yield asking
                    now = row["now"]
                ask = Ask(ask.statement, {**ask.parameters, "now": now, "late_at": _late_at(now, ask.parameters)})
            rows = yield ask
            if ask.statement.name == asking.statement.name:
                now = rows[0]["now"]
            ask = conversation.send(rows)
    except StopIteration as end:
        answer: T = end.value
        return answer


def _late_at(now: datetime, parameters: Mapping[str, object]) -> datetime:
    """A third of the lease later: no worker waits for the answer longer. Sooner if the statement has its own end."""
    lease = parameters.get("lease") or parameters.get("attempt_lease")
    late_at = now + (lease / 3 if isinstance(lease, timedelta) else LATE_AFTER)
    not_after = parameters.get("not_after")
    return min(late_at, not_after) if isinstance(not_after, datetime) else late_at
