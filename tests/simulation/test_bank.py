"""Every planted bug can still be planted, and a part of them is hunted here; `./tools/dev bugs` hunts all."""

from __future__ import annotations

import pytest

from simulation.bank import BANK
from simulation.parts import Part
from simulation.planting import Planted
from simulation.world import AT_EVERY_COMMIT, AT_EVERY_LOCK, AT_THE_END, PARTS, World, simulate

EVERY = 8
SEEDS_UNTIL_SEEN_MAX = 60


@pytest.mark.parametrize("bug", BANK[1::EVERY], ids=lambda bug: bug.name)
def test_a_planted_bug_is_seen(bug: Planted) -> None:
    for seed in range(SEEDS_UNTIL_SEEN_MAX):
        seen = {violation.checker for violation in simulate(seed, prepare=bug.plant).violations}
        if seen.intersection(bug.seen_by):
            return
    pytest.fail(f"not seen within {SEEDS_UNTIL_SEEN_MAX} seeds")


def test_every_bug_can_be_planted() -> None:
    """The text that it changes is still there."""
    for bug in BANK:
        World(0, prepare=bug.plant).dispose()
    assert len({bug.name for bug in BANK}) == len(BANK) >= 40


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_every_checker_of_a_part_has_a_bug_to_see(part: type[Part]) -> None:
    checkers = {check.__name__ for check in (*part.at_every_commit, *part.at_the_end)}
    assert checkers <= {checker for bug in BANK for checker in bug.seen_by}


def test_every_checker_of_actions_has_a_bug_to_see() -> None:
    checkers = {check.__name__ for check in (*AT_EVERY_COMMIT, *AT_EVERY_LOCK, *AT_THE_END)} | {"overlooked"}
    assert checkers <= {checker for bug in BANK for checker in bug.seen_by}
