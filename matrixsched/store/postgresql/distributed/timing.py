"""The time of a decision, in distributed form: asked first, of the node that clients connect to, and given to what is
asked then. So the clocks of other nodes decide nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from matrixsched.store.transition import Ask, Conversation, Transition

T = TypeVar("T")


def timed(transition: Transition[T], now: Ask) -> Transition[T]:
    """A transition that asks for the time before the first statement that wants it, unless whoever asks has told it."""
    return replace(transition, begin=lambda: _timed(transition.begin(), now))


def _timed(conversation: Conversation[T], asking: Ask) -> Conversation[T]:
    given: dict[str, object] = {}
    try:
        ask = next(conversation)
        while True:
            if ask.statement.name != asking.statement.name and ask.parameters.get("now", given) is None:
                if not given:
                    (row,) = yield asking
                    given = {"now": row["now"]}
                ask = Ask(ask.statement, {**ask.parameters, **given})
            ask = conversation.send((yield ask))
    except StopIteration as end:
        answer: T = end.value
        return answer
