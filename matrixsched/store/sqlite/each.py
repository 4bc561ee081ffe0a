"""A statement asked once for each of many rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matrixsched.store.transition import Ask


@dataclass(frozen=True, slots=True)
class AskEach(Ask):
    """Answered without rows. `columns` name the parameters in the order in which each of `rows` holds them.

    Only for our own connection, where it costs half of asking row by row; callers' connections get plain asks.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
