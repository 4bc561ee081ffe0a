"""Moves do something where they are played: two of which one finds nothing to do prove nothing about each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import pytest

from interleaver.moves import MOVES
from interleaver.playing import open_game
from interleaver.scenes import SCENES, scenes_of
from interleaver.schedules import Fixed
from interleaver.stage import Stage

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.undistributed("its moves are those of sql/postgresql/"),
    pytest.mark.direct("statements are held in sessions of their own"),
]

STEPS = (
    *("schedule", "replace", "cancel", "acquire", "move", "claim", "record", "extend", "release"),
    *("sweep", "prune", "plan", "balance", "take", "done"),
)
"""Of these every pair is played where both change something; dead rows are dropped by `move`, `claim` and `sweep`."""
IDLE_MOVES = {
    "done-late": "a receipt that is void changes nothing",
}
IDLE_PAIRS = {
    ("cancel", "prune"): "what has ended is not cancelled, and what has not is not pruned: no action is for both",
}
STRANGERS = {
    **dict.fromkeys(
        [(one, "balance") for one in STEPS[: STEPS.index("balance")] if one != "release"],
        "to the actions it adds an event under an id of its own, which nobody else knows yet",
    ),
    ("prune", "plan"): "a plan looks at actions that are live only",
}
"""Have tables in common, and no rows; they are played in `everything` alone."""
EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Deed:
    """What a move does in a scene when it is alone."""

    changed: frozenset[str]
    touched: frozenset[str]
    """Tables."""

    def meets(self, other: Deed) -> bool:
        return bool(self.changed & other.touched or other.changed & self.touched)


Deeds = dict[tuple[str, str], Deed]


@pytest.fixture
async def deeds(stage: Stage) -> Deeds:
    """By move and scene: of the steps in all scenes, of other moves until one is found in which they do something."""
    deeds: Deeds = {}
    busy: set[str] = set()
    for scene in SCENES.values():
        for move in (move for move in scene.moves if move in STEPS or move not in busy):
            deed = deeds[move, scene.name] = await alone(stage, move, scene.name)
            busy |= {move} if deed.changed else set()
    return deeds


async def alone(stage: Stage, move: str, scene: str) -> Deed:
    game = await open_game(stage, (move,), SCENES[scene])
    run = await game.play(Fixed(""), "A")
    assert not run.violations, (move, scene, run.violations)
    after = await stage.read(run.written)
    changed = {table for table, rows in after.items() if rows_of(rows) != rows_of(game.saved.tables[table])}
    return Deed(frozenset(changed), frozenset(run.touched))


def rows_of(rows: list[dict[str, object]]) -> list[str]:
    return sorted(map(str, rows))


async def test_moves_change_something_where_they_are_played(deeds: Deeds):
    idle = {move for move in MOVES if not any(deed.changed for (name, _), deed in deeds.items() if name == move)}
    assert idle == set(IDLE_MOVES)
    assert {pair: scenes for pair, scenes in where_both_do_something(deeds) if not scenes} == {
        pair: [] for pair in IDLE_PAIRS
    }
    assert set(strangers_who_meet(deeds)) == set(STRANGERS)


def where_both_do_something(deeds: Deeds) -> Iterator[tuple[tuple[str, str], list[str]]]:
    for one, other in combinations_with_replacement(STEPS, 2):
        scenes = [scene.name for scene in scenes_of((one, other))]
        yield (one, other), [scene for scene in scenes if deeds[one, scene].changed and deeds[other, scene].changed]


def strangers_who_meet(deeds: Deeds) -> Iterator[tuple[str, str]]:
    """Those who have a table in common, but are played only where they are busy with different rows of it."""
    for (one, other), scenes in where_both_do_something(deeds):
        met = [scene for scene in scenes if scene != EVERYTHING and deeds[one, scene].meets(deeds[other, scene])]
        if scenes and not met and deeds[one, EVERYTHING].meets(deeds[other, EVERYTHING]):
            yield one, other


def test_a_move_that_finds_nothing_to_do_is_noticed():
    busy, idle, elsewhere = (Deed(frozenset(one), frozenset(one)) for one in ({"actions"}, set(), {"queues"}))
    deeds: Deeds = {(move, scene.name): busy for scene in SCENES.values() for move in scene.moves}
    assert all(scenes for _, scenes in where_both_do_something(deeds))
    lazy = deeds | {key: idle for key in deeds if key[0] == "plan"}
    assert {pair for pair, scenes in where_both_do_something(lazy) if not scenes} == {
        pair for pair in combinations_with_replacement(STEPS, 2) if "plan" in pair
    }
    apart = deeds | {key: elsewhere for key in deeds if key[0] == "prune" and key[1] != EVERYTHING}
    assert ("record", "prune") in strangers_who_meet(apart)
    assert ("record", "extend") not in strangers_who_meet(apart)
