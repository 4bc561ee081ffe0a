"""What was waiting when a window was planned, told from what was asked for and from what the handlers noted.

All messages were due from the beginning, so a message waits until a worker claims it, which nobody outside of the
database sees. But a claim of one window starts before that window ends, or a moment later, or not at all. So whatever
a handler began later than that moment, at its first attempt, was surely waiting when the next window was planned; what
a handler had begun before that window was surely not. In doubt are only those in between, those that were claimed in
vain (their first note is not of their first attempt), and those with an end, which nobody may have had time for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from matrixsched.ops.evidence import Account
from sending.campaigns import Cell, Letter


class Between(NamedTuple):
    least: int
    most: int


class Waiting:
    def __init__(self, letters: Iterable[Letter], account: Account) -> None:
        surely: defaultdict[Cell, list[float]] = defaultdict(list)
        perhaps: defaultdict[Cell, list[float]] = defaultdict(list)
        for letter in letters:
            perhaps[letter.cell].append(_perhaps_until(letter, account))
            surely[letter.cell].append(_surely_until(letter, account))
        self._surely: Mapping[Cell, list[float]] = {cell: sorted(times) for cell, times in surely.items()}
        self._perhaps: Mapping[Cell, list[float]] = {cell: sorted(times) for cell, times in perhaps.items()}

    def counts(self, begun_by: float, surely_by: float) -> Iterator[tuple[Cell, Between]]:
        """How many waited: all that no handler had by the first moment; for sure those that none had by the second."""
        for cell, times in self._perhaps.items():
            yield cell, Between(_later(self._surely[cell], surely_by), _later(times, begun_by))


def _perhaps_until(letter: Letter, account: Account) -> float:
    if letter.id in account.done:
        return max(begun for begun, _ in account.begun_at[letter.id])
    return letter.expires_at.timestamp() if letter.expires_at is not None else float("inf")


def _surely_until(letter: Letter, account: Account) -> float:
    if letter.expires_at is not None or account.first_attempt.get(letter.id) != 1:
        return float("-inf")
    return account.first_begun[letter.id]


def _later(times: list[float], than: float) -> int:
    return len(times) - bisect_right(times, than)
