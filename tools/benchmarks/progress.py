"""How far a run is, and how long it may still take."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from statistics import mean


class Progress:
    """Turns, the same ones in each round; what one took in a round is what it is thought to take in the next."""

    def __init__(self, rounds: int, turns: Sequence[Hashable], *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._rounds, self._per_round = rounds, len(turns)
        self._turns = list(turns) * rounds
        self._done = 0
        self._took_s: dict[Hashable, float] = {}
        self._begun = self._turn_begun = now()

    def begin(self) -> str:
        """Which turn of how many begins, in which round."""
        self._turn_begun = self._now()
        all_turns = len(self._turns)
        number = f"{self._done + 1:{len(str(all_turns))}}/{all_turns}"
        return f"{number}  round {self._done // self._per_round + 1}/{self._rounds}"

    def end(self) -> str:
        """How much time has gone, and how much the others may take."""
        self._took_s[self._turns[self._done]] = self._now() - self._turn_begun
        self._done += 1
        usual_s = mean(self._took_s.values())
        left_s = sum(self._took_s.get(turn, usual_s) for turn in self._turns[self._done :])
        return f"{shown(self._now() - self._begun)} so far" + (f", about {shown(left_s)} left" if left_s else "")


def shown(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
