"""All crash points of one action; the other scenes by sample. `./tools/dev crashpoints` plays all of all."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from simulation.bank import BANK
from simulation.crash_points import is_playable, pairs_of_faults, places, play, single_faults, stage
from simulation.faults import IDLE_LOOKS, Fault
from simulation.nemesis import Aim, AimedNemesis, Where
from simulation.parts import with_part
from simulation.scenes import SCENES, Scene
from simulation.world import PARTS

ONE_ACTION, *OTHERS = SCENES
SLICES = 8
SAMPLE = 8
SEEN: tuple[tuple[str, str, tuple[Aim, ...]], ...] = (
    ("under a limit", "a handler is called before its slot begins", ()),
    ("stopped before its slot", "what is given back counts as interrupted", ()),
    ("campaign", "what is granted is not used up", ()),
    ("told to slow down", "being told to slow down changes nothing", ()),
    (
        "two for one place",
        "a request that is sent again enqueues again",
        (Aim(Where.CALL, "client", 0, Fault.REPLY_LOST, "enqueue_tasks"),),
    ),
    ("asked to step back", "whoever steps back keeps its guid", ()),
    ("a place that lapses", "places are held for good", ()),
    (
        "a batch",
        "a put that is sent again is another",
        (Aim(Where.CALL, "client", 0, Fault.REPLY_LOST, "put_tasks"),),
    ),
    ("a long batch", "batches are not prolonged", ()),
    (
        "moved into a queue",
        "a delivery is put by an attempt that lost its row",
        (Aim(Where.CALL, "worker", 0, Fault.REPLY_LOST, "record_deliveries"),),
    ),
)
"""Of each scene of a part: a planted bug that it shows, with the fault without which it does not."""


PLAYED = {
    "one action": {"succeeded"},
    "an action that fails": {"failed", "succeeded"},
    "stopped in order": {"interrupted", "succeeded"},
    "out of time": {"timed_out", "succeeded"},
    "known to nobody": set(),
    "quarantined": {"quarantined"},
    "told to slow down": {"retried", "succeeded"},
}
"""The outcomes of a scene without faults."""
AT_REST = IDLE_LOOKS | {"beat_shard", "close_fence", "end_chore", "keep_chore", "release_shard"}
"""What workers write although there is nothing to do."""
STEPS = {
    *("acquire_shard", "move", "claim", "record", "extend", "give_back", "beat_shard", "release_shard"),
    *("schedule", "replace", "reschedule", "cancel", "expire_waiting", "prune_actions"),
    *("claim_gated", "plan_window", "slow_down", "balance", "enqueue_tasks", "release_tasks", "step_back"),
    *("put_tasks", "take_tasks", "extend_tasks", "done_tasks", "retry_tasks", "set_aside_tasks", "record_deliveries"),
}


@pytest.mark.parametrize("number", range(SLICES))
def test_one_action_survives_every_fault_at_every_place(number: int) -> None:
    for aims in islice(single_faults(ONE_ACTION), number, None, SLICES):
        assert_survives(ONE_ACTION, aims)


@pytest.mark.parametrize("scene", OTHERS, ids=lambda scene: scene.name)
def test_faults_at_some_places_of_longer_scenes(scene: Scene) -> None:
    chance = Random(scene.name)
    for aims in chance.sample(list(single_faults(scene)), k=SAMPLE):
        assert_survives(scene, aims)
    for aims in pairs_of_faults(scene, SAMPLE // 4, chance):
        assert_survives(scene, aims)


def assert_survives(scene: Scene, aims: tuple[Aim, ...]) -> None:
    result = play(scene, aims)
    told = " ".join(f'--aim "{aim}"' for aim in aims)
    assert not result.violations, f'./tools/dev crashpoints --scene "{scene.name}" {told}  # {result.violations[0]}'


def test_places_are_those_of_workers_and_clients_at_calls_and_steps() -> None:
    found = places(ONE_ACTION)
    assert set(found) == {(where, hosts) for where in Where for hosts in ("worker", "client")}
    assert found[Where.CALL, "worker"] > 20
    assert found[Where.STEP, "worker"] > 100


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_scene_plays_what_it_says_before_the_last_fault(scene: Scene) -> None:
    world = stage(scene, (), keeps_trace=True)
    result = world.run()
    assert not result.violations, result.violations[0]
    healed = next(number for number, line in enumerate(result.trace) if line.endswith(" HEAL"))
    written = [line.rpartition(" ")[2] for line in result.trace[healed:] if " committed " in line]
    assert not set(written) - AT_REST
    played = {record.verdict.outcome.value for record in world.history.records}
    assert played == PLAYED.get(scene.name, played)


def test_scenes_together_strike_every_step_of_the_protocol() -> None:
    struck: set[str | None] = set()
    for scene in SCENES:
        world = stage(scene, ())
        world.run()
        assert isinstance(world.nemesis, AimedNemesis)
        struck |= {name for _, _, name in world.nemesis.passed}
    assert struck >= STEPS


def test_who_is_told_in_which_shard_something_is_new_takes_it_by_the_move() -> None:
    (scene,) = (one for one in SCENES if one.name == "told in which shard")
    result = stage(scene, (), keeps_trace=True).run()
    written = [line.rpartition(" ")[2] for line in result.trace if " committed " in line]
    assert "move" in written
    assert "acquire_shard" not in written


def test_what_is_planted_in_a_part_is_planted_in_the_scenes_of_that_part() -> None:
    played = {part: [scene for scene in SCENES if is_playable(scene, with_part(part))] for part in PARTS}
    for scene in SCENES:
        assert sum(scene in scenes for scenes in played.values()) == (1 if scene.parts else len(PARTS))


@pytest.mark.parametrize(("scene", "bug", "aims"), SEEN, ids=[scene for scene, _, _ in SEEN])
def test_a_scene_of_a_part_is_judged_by_its_checkers(scene: str, bug: str, aims: tuple[Aim, ...]) -> None:
    (staged,) = (one for one in SCENES if one.name == scene)
    (planted,) = (one for one in BANK if one.name == bug)
    seen = {violation.checker for violation in play(staged, aims, prepare=planted.plant).violations}
    assert seen.intersection(planted.seen_by)
    if aims:
        assert not seen.intersection(
            violation.checker for violation in play(staged, (), prepare=planted.plant).violations
        )


def test_every_scene_of_a_part_shows_a_bug() -> None:
    assert [scene for scene, _, _ in SEEN] == [scene.name for scene in SCENES if scene.parts]


def test_a_fault_happens_where_it_was_aimed() -> None:
    for number in (0, 11):
        result = play(ONE_ACTION, [Aim(Where.CALL, "worker", number, Fault.REPLY_LOST)])
        assert result.faults == 1
    assert Aim.read("worker call 11 reply lost") == Aim(Where.CALL, "worker", 11, Fault.REPLY_LOST)
    with pytest.raises(ValueError, match="is no aim"):
        Aim.read("worker call eleven")
