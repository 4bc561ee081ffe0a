"""Every place of a short run at which something can go wrong, each in a run of its own in which it does.

A scene is played once without faults, and the places are counted: each call of the store, each step of a host from one
await to the next. Then it is played again for every place with every fault that can happen there; what comes before
is the same to the letter. Two faults at once are tried by sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import chain
from random import Random
from typing import Any

from matrixsched.worker.policy import WorkerPolicy
from simulation.actors import BEHAVIOURS, Client
from simulation.faults import Fault
from simulation.nemesis import Aim, AimedNemesis, Where
from simulation.planting import Plant
from simulation.scenes import Scene
from simulation.sizes import Size
from simulation.world import Result, World

SEED = 8131
HOSTS = ("worker", "client")
FAULTS = {
    Where.CALL: (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.REPLY_LOST, Fault.LATE),
    Where.STEP: (Fault.CRASH, Fault.STOP),
}
"""A host that stands still is held at the steps before and after a call."""
USUAL_POLICY: dict[str, Any] = {
    "concurrency": 2,
    "batch_max": 2,
    "timeout_grace": timedelta(seconds=2),
    "stop_grace": timedelta(seconds=3),
}


def places(scene: Scene) -> dict[tuple[Where, str], int]:
    """How many there are of each kind, by the hosts they belong to."""
    world = stage(scene, ())
    result = world.run()
    assert not result.violations, result.violations[0]
    assert isinstance(world.nemesis, AimedNemesis)
    return {(where, hosts): count for (where, hosts, name), count in world.nemesis.passed.items() if name is None}


def single_faults(scene: Scene) -> Iterator[tuple[Aim, ...]]:
    """Each place with each fault."""
    for (where, hosts), count in places(scene).items():
        for number in range(count):
            for fault in FAULTS[where]:
                yield (Aim(where, hosts, number, fault),)


def pairs_of_faults(scene: Scene, count: int, chance: Random) -> Iterator[tuple[Aim, ...]]:
    """Two places by chance. The second is counted on after the first fault, so it may be anywhere, or nowhere."""
    single = list(chain.from_iterable(single_faults(scene)))
    for _ in range(count):
        yield tuple(chance.sample(single, k=2))


def play(scene: Scene, aims: Sequence[Aim], *, prepare: Plant | None = None) -> Result:
    """The scene with these faults."""
    return stage(scene, aims, prepare=prepare).run()


def stage(scene: Scene, aims: Sequence[Aim], *, prepare: Plant | None = None, keeps_trace: bool = False) -> World:
    """A world in which the scene is about to be played; `prepare` may plant a mistake in it."""

    def prepare_all(world: World) -> None:
        world.size = _size(scene)
        world.parts = [part(world) for part in scene.parts]
        world.behaviours = {**BEHAVIOURS, **scene.handlers(world)}
        world.nemesis = AimedNemesis(world, aims, HOSTS)
        world.clients = lambda: {"client0": _life(scene, Client(world, "client0", ["a", "b", "c"]))}
        if prepare is not None:
            prepare(world)

    return World(SEED, keeps_trace=keeps_trace, prepare=prepare_all)


def is_playable(scene: Scene, prepare: Plant) -> bool:
    """Whether the scene still has its parts when that is planted."""
    world = stage(scene, (), prepare=prepare)
    world.dispose()
    return all(any(isinstance(one, part) for one in world.parts) for part in scene.parts)


async def _life(scene: Scene, client: Client) -> None:
    await scene.play(client)


def _size(scene: Scene) -> Size:
    return Size(
        shards=1,
        workers=2,
        clients=1,
        callers=1,
        ids=3,
        operations=1,
        think_s=0,
        chaos_s=scene.lasts_s,
        is_told=True,
        shards_named=scene.shards_named,
        policy=WorkerPolicy(**(USUAL_POLICY | dict(scene.policy))),
    )
