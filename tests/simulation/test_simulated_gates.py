"""Seeds with limits, templates and quota in them: no violation, and much that waits."""

from __future__ import annotations

from simulation.gate_notes import notes_of
from simulation.gates import GatesPart
from simulation.parts import with_part
from simulation.world import World

SEEDS = 8


def test_much_passes_gates_and_nothing_is_violated() -> None:
    passed = limited = windows = 0
    for seed in range(SEEDS):
        world = World(seed, prepare=with_part(GatesPart))
        result = world.run()
        assert not result.violations, f"./tools/dev simulate --part gates --seed {seed}  # {result.violations[0]}"
        notes = notes_of(world)
        passed += len(notes.passed)
        limited += sum(len(limits) > 0 for limits in notes.passed.values())
        windows += len(notes.after.windows)
    assert passed > 8 * SEEDS
    assert limited > 4 * SEEDS
    assert windows > SEEDS
