"""How soon a worker looks for work again that has just looked in vain.

All workers at rest know when the next action of all is due, are told of what is new, and look then: one of them finds
it. Each look reads the heads of all shards, so a fleet would spend its database's time on looks that find nothing. What
they take together is therefore kept to a share of one processor, however much comes due: who finds nothing twice in a
row holds back for as long as its part of that share asks. Nobody who finds something holds back. So some do the work
while the others rest, by turns; where there is more than those can do, others come one after another, and stay.
"""

from __future__ import annotations

from matrixsched.clock import Chance, Clock

VAIN_SHARE = 0.3
"""Of one processor's time, what a whole fleet may take for looks in vain, beside those at each longest rest."""


class Restraint:
    def __init__(self, clock: Clock, chance: Chance, *, longest_s: float) -> None:
        """Nobody is held back for longer than `longest_s`: others may have gone since they were counted."""
        self._clock = clock
        self._chance = chance
        self._longest_s = longest_s
        self.others = 0
        """Workers beside this one, when they were last counted."""
        self._looked_in_vain = False
        self._until = float("-inf")

    @property
    def rest_s(self) -> float:
        """How long not to look yet."""
        return max(0.0, self._until - self._clock.monotonic())

    def found(self) -> None:
        """There was something to do."""
        self._looked_in_vain = False

    def found_nothing(self, took_s: float) -> None:
        """Of two in vain the first only told when there will be something: this worker may be who finds it then."""
        if self._looked_in_vain and self.others:
            rest_s = min(2 * took_s * self.others / VAIN_SHARE, self._longest_s)
            # By chance, or all would look together again.
            self._until = self._clock.monotonic() + rest_s * (1 + self._chance.random()) / 2
        self._looked_in_vain = not self._looked_in_vain

    def lift(self) -> None:
        """There is something to do of which the others are not told."""
        self._until = float("-inf")
