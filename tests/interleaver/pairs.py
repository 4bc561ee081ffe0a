"""Which moves are played with which, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from random import Random

from interleaver.moves import MOVES
from interleaver.playing import TWIN
from interleaver.scenes import SCENES, scenes_of


@dataclass(frozen=True, slots=True)
class Unit:
    """Moves, and a scene to play them in."""

    names: tuple[str, ...]
    scene: str
    schedules: int = 0
    """How many by chance; 0: all."""
    seed: int = 0


def all_pairs() -> Iterator[Unit]:
    """Every pair of moves, wherever that is worth it; and each beside its own twin."""
    for pair in combinations_with_replacement(MOVES, 2):
        yield from (Unit(pair, scene.name) for scene in scenes_of(pair))
    for name, move in MOVES.items():
        if move.twin:
            yield from (Unit((name, name + TWIN), scene.name) for scene in scenes_of([name]))


def some_threes(count: int, schedules: int, seed: int) -> Iterator[Unit]:
    """Three moves each, drawn from those of a scene."""
    random = Random(seed)
    scenes = [scene for scene in SCENES.values() if scene.name != "everything"]
    for number in range(count):
        scene = random.choice(scenes)
        names = tuple(random.choice(scene.moves) for _ in range(3 if scene.mend is None else 2))
        names += () if scene.mend is None else (scene.mend,)
        yield Unit(names, scene.name, schedules, seed + number)


def named(names: Sequence[str], scene: str | None) -> list[Unit]:
    """These moves in this scene, or wherever it is worth it."""
    if scene is not None:
        return [Unit(tuple(names), scene)]
    return [Unit(tuple(names), found.name) for found in scenes_of(name.rstrip(TWIN) for name in names)]
