"""The database's time, told from this machine's clock without asking.

Every answer that holds the database's time was given at some moment between the question and the answer. Each such
bracket bounds how far the two clocks are apart; all of them together bound it to about the quickest answer there was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

FORGET_AFTER_S = 5.0
"""Clocks drift apart and are set: what was learned is forgotten after at most twice this time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Bracket:
    """The database's time minus ours lies from `least` to `most`, in seconds."""

    least: float = float("-inf")
    most: float = float("inf")

    def __and__(self, other: _Bracket) -> _Bracket:
        return _Bracket(max(self.least, other.least), min(self.most, other.most))

    @property
    def is_possible(self) -> bool:
        return self.least <= self.most


class DatabaseTime:
    def __init__(self) -> None:
        self._before = self._present = self._known = _Bracket()
        self._present_since = float("-inf")

    def learn(self, asked_at: float, answered_at: float, now: datetime) -> None:
        """The database said `now` at some moment between these, on our monotonic clock."""
        said = (now - _EPOCH).total_seconds()
        bracket = _Bracket(said - answered_at, said - asked_at)
        if answered_at - self._present_since > FORGET_AFTER_S:
            self._before, self._present, self._present_since = self._present, bracket, answered_at
        else:
            self._present &= bracket
        self._known = self._before & self._present
        if not self._known.is_possible:  # one of the clocks was set
            self._before, self._present, self._known = _Bracket(), bracket, bracket

    def surely_reached(self, moment: datetime) -> float:
        """From when on, on our clock, the database's time is past that moment for sure."""
        return (moment - _EPOCH).total_seconds() - self._known.least

    def perhaps_reached(self, moment: datetime) -> float:
        """From when on, on our clock, the database's time may be past that moment."""
        return (moment - _EPOCH).total_seconds() - self._known.most

    def latest(self, at: float) -> datetime | None:
        """The database's time at a moment of our clock, at the latest; None if nothing is known of it."""
        most = self._known.most
        return None if most == float("inf") else _EPOCH + timedelta(seconds=at + most)
