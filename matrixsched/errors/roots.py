"""What all errors have in common."""

from __future__ import annotations

from typing import ClassVar

SHOWN_MAX = 80


def shown(value: object) -> str:
    """Whatever a caller passed, as a message shows it: short, and never itself a reason to fail."""
    try:
        text = repr(value)
    except Exception:  # a number with more digits than Python agrees to write, lists too deep to follow
        text = f"{type(value).__name__} that cannot be shown"
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"


class MatrixSchedError(Exception):
    """The root: catch it to catch everything that matrixsched raises on purpose."""

    remedy: ClassVar[str] = "See the message."

    def __str__(self) -> str:
        return self.with_remedy(self.remedy)

    def with_remedy(self, remedy: str) -> str:
        """What happened, and this next move."""
        message = super().__str__()
        return f"{message}{'' if message.endswith('?') else '.'} {remedy}"


class BadInput(MatrixSchedError, ValueError):
    """The call was refused before anything was written."""

    remedy = "Correct the argument and call again; nothing was written."
