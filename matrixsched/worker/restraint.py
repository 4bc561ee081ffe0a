"""How soon a worker looks for work again that has just looked in vain.

All workers at rest know when the next action of all is due, are told of what is new, and look then: one of them finds
it. Each look reads the heads of all shards, so a fleet would spend its database's time on looks that find nothing. What
they take together is therefore kept to a share of one processor, however much comes due: who finds nothing twice in a
row holds back for as long as its part of that share asks. Whoever finds something, or knows of something, goes on. So
some do the work while the others rest, by turns; where there is more than those can do, others come one after another.
"""

from __future__ import annotations

from matrixsched.clock import Chance, Clock

VAIN_SHARE = 0.3
"""Of one of the database's processors, what a whole fleet may take for looks in vain, beside those at longest rests."""
LOOK_S = 350e-6
LOOK_SHARD_S = 5e-6
"""Processor time of a look, and for each shard, as measured (docs/capacity.md). Not how long the answer took: that
is also the way to the database and waiting, which cost nobody else anything."""
HOLD_MAX_S = 1.0
"""Others may have gone since they were counted."""


class Restraint:
    def __init__(self, clock: Clock, chance: Chance, *, rest_max_s: float) -> None:
        self._clock = clock
        self._chance = chance
        self._longest_s = min(rest_max_s, HOLD_MAX_S)
        self._hold_s = 0.0
        """On average."""
        self._once_in_vain = False
        self._until = float("-inf")

    def learn(self, *, others: int, shards: int) -> None:
        """How many others are there that may find what this worker may find."""
        self._hold_s = 2 * (LOOK_S + LOOK_SHARD_S * shards) * (others + 1) / VAIN_SHARE if others else 0.0

    @property
    def rest_s(self) -> float:
        """How long not to look yet."""
        return max(0.0, self._until - self._clock.monotonic())

    def lift(self) -> None:
        """There is something to do, or may be that of which others are not told; also if a look is under way."""
        self._once_in_vain, self._until = False, float("-inf")

    def found_nothing(self) -> None:
        """Of two in vain the first only told when there will be something: this worker may be who finds it then."""
        if self._once_in_vain:
            # Of those who hold back now one is to come soon: there may be more to do than the others can.
            rest_s = min(2 * self._hold_s, self._longest_s) * self._chance.random()
            self._until = self._clock.monotonic() + rest_s
        self._once_in_vain = not self._once_in_vain
