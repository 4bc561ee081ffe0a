"""Seeds with crashes, lost answers and late statements: after no commit does `fsck` find anything wrong."""

from __future__ import annotations

from collections import Counter

from matrixsched.ops.fsck import is_litter
from matrixsched.rules.faults import Fault
from matrixsched.rules.queues import VISIBILITY_MAX
from matrixsched.store.fsck import FsckPosition, FsckTerms
from matrixsched.worker.policy import ATTEMPT_LEASE_MAX
from simulation.commit_checkers import Commit, Objections
from simulation.parts import Part
from simulation.world import World

SEEDS = 4


def nothing_is_wrong(commit: Commit) -> Objections:
    """Nothing is found but litter."""
    store, shards = commit.world.database.store, commit.world.size.shards
    terms = FsckTerms(
        shard_count=shards, attempt_lease_max=ATTEMPT_LEASE_MAX, visibility_max=VISIBILITY_MAX, limit=1000
    )
    do, run = store.transitions, store._database.run
    found = [*run(do.find_in_installation(terms))]
    for shard in range(shards):
        found += run(do.find_in_slice(shard, terms, first=FsckPosition(), size=1000)).findings
    for finding in found:
        seen[finding.fault] += 1
        if not is_litter(finding.fault):
            yield str(finding)


seen: Counter[Fault] = Counter()


class Fscked(Part):
    name = "fsck"
    at_every_commit = (nothing_is_wrong,)


def add_fsck(world: World) -> None:
    world.parts.append(Fscked(world))


def test_nothing_is_found_after_any_commit_but_litter() -> None:
    seen.clear()
    for seed in range(SEEDS):
        result = World(seed, prepare=add_fsck).run()
        assert not result.violations, f"seed {seed}: {result.violations[0]}"
    assert seen[Fault.DEAD] > 100
