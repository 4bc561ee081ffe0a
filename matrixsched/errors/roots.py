"""What all errors have in common."""

from __future__ import annotations

from typing import ClassVar


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
