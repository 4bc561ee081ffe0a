"""What comes after the tests of the store: the simulator and crash points, or pairs of the interleaver."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from interleaver.moves import MOVES
from interleaver.playing import LIMIT, TWIN, play_all
from interleaver.scenes import SCENES, scenes_of
from interleaver.stage import Stage, a_stage
from simulation.crash_points import play, single_faults
from simulation.parts import with_part
from simulation.scenes import SCENES as CRASH_SCENES
from simulation.world import Result, simulate
from support.interleaving import Mutant, install
from support.postgres import PostgresServer

from hunting.hot import Hot, Mutation
from matrixsched.store.statements import Statement

SIMULATOR, CRASH_POINTS, INTERLEAVER = "simulator", "crash points", "interleaver"

At = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Catch:
    by: str
    """What kind of program."""
    where: str
    """Which of them: a test, a seed, a pair in a scene."""


# SQLite: with the mutant planted.


def simulated(hot: Hot, seeds: int, at: At) -> Catch | None:
    prepare = None if hot.part is None else with_part(hot.part)
    for seed in range(seeds):
        at(f"seed {seed}")
        if why := _objection(partial(simulate, seed, prepare=prepare)):
            return Catch(SIMULATOR, f"seed {seed}: {why}")
    return None


def crash_points(hot: Hot, at: At) -> Catch | None:
    """Of one action; parts have nothing to do with that."""
    if hot.part is not None:
        return None
    scene = CRASH_SCENES[0]
    at(scene.name)
    for aims in single_faults(scene):
        at(f"{scene.name}: {aims}")
        if why := _objection(partial(play, scene, aims)):
            return Catch(CRASH_POINTS, f"{aims}: {why}")
    return None


def _objection(run: Callable[[], Result]) -> str:
    """What a checker says; a run that breaks down is an objection, too."""
    try:
        return str(next(iter(run().violations), ""))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# PostgreSQL: with the mutant not planted but on the stage, for serial orders are played without mistakes.


@dataclass(frozen=True, slots=True)
class Exchanged(Mutant):
    """A mutant for the interleaver whose whole text is another."""

    def of(self, original: Statement) -> Statement:
        return self.mutation.mutated

    mutation: Mutation


def pairs_of(hot: Hot) -> Iterator[tuple[tuple[str, str], str]]:
    """Each of its moves beside every other and beside its own twin, where that is worth it."""
    for name in hot.moves:
        others = [name + TWIN] if MOVES[name].twin else []
        for other in [*others, *MOVES]:
            for scene in scenes_of((name, other.rstrip(TWIN))):
                if scene.name != "everything":
                    yield (name, other), scene.name


def interleaved(mutation: Mutation, server: PostgresServer, schedules: int, at: At) -> Catch | None:
    name = f"hunt_{uuid.uuid4().hex}"
    dsn = server.create_database(name)
    try:
        return asyncio.run(_interleaved(mutation, dsn, schedules, at))
    finally:
        server.drop_database(name)


async def _interleaved(mutation: Mutation, dsn: str, schedules: int, at: At) -> Catch | None:
    await install(dsn)
    async with a_stage(dsn) as stage:
        with stage.planted([Exchanged(mutation.statement, "", "", mutation)]):
            for names, scene in pairs_of(mutation.hot):
                where = f"{','.join(names)} in {scene}"
                at(where)
                if why := await _finding(stage, names, scene, min(schedules, LIMIT)):
                    return Catch(INTERLEAVER, f"{where}: {why}")
    return None


async def _finding(stage: Stage, names: tuple[str, str], scene: str, schedules: int) -> str:
    try:
        tally = await play_all(stage, names, SCENES[scene], limit=schedules, stop=True)
    except Exception as error:  # who plays it cannot make sense of what it answers
        return f"{type(error).__name__}: {error}"
    return tally.findings[0].violations[0] if tally.findings else ""
