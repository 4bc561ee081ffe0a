"""What `matrixsched explain` shows."""

from __future__ import annotations

from datetime import datetime

from matrixsched.app import App
from matrixsched.ops.actions import Sections
from matrixsched.ops.render import Facts, age, as_argument, visible
from matrixsched.rules.action import State
from matrixsched.rules.explanation import Explanation, Move, Reason, Why

_WITHOUT_OPTIONS = ("worker",)
"""The App of a worker says which database."""


async def explained(app: App, action_id: str) -> Explanation:
    async with app:
        return await app.explain(action_id)


def sections(explanation: Explanation, options: str) -> Sections:
    return {
        "action": {
            "id": explanation.id,
            "handler": explanation.handler,
            "state": explanation.state.value,
            "due_at": explanation.due_at,
            "worker_seen_at": explanation.worker_seen_at,
            "asked_at": explanation.now,
        },
        "reasons": [_row(reason, options) for reason in explanation.reasons],
    }


def _row(reason: Reason, options: str) -> Facts:
    return {
        "reason": reason.why.value,
        "explained": reason.text,
        "since": reason.since,
        "until": reason.until,
        "next_move": move_text(reason.move, options),
    }


def move_text(move: Move, options: str) -> str:
    if move.command is None:
        return move.text
    given = "" if move.command in _WITHOUT_OPTIONS else options
    words = "".join(f" {as_argument(argument)}" for argument in move.arguments)
    return f"{move.text}: `matrixsched {move.command}{given}{words}`"


def said(explanation: Explanation, options: str) -> str:
    """The deciding reason in a sentence, and what to do about it."""
    reason = explanation.reason
    is_held = explanation.state is State.LIVE and reason.why not in _NOT_HELD and explanation.due_at <= explanation.now
    due = f"it has been due for {age(explanation.now - explanation.due_at)}: " if is_held else ""
    move = move_text(reason.move, options)
    return f"{due}{visible(reason.text)}{_timing(reason, explanation.now)}. {move[:1].upper()}{move[1:]}."


_NOT_HELD = (Why.RUNNING, Why.EXPIRED)


def _timing(reason: Reason, now: datetime) -> str:
    if reason.until is not None and reason.until > now:
        return f", for another {age(reason.until - now)}"
    if reason.since is not None and reason.why in (Why.FINISHED, *_NOT_HELD):
        return f", {age(now - reason.since)} ago"
    return ""
