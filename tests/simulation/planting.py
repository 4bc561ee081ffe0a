"""How mistakes are planted in a run: in its SQL, in what is asked of it, in the code, in the way its workers live."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from simulation.actors import SimulatedWorker
from simulation.world import World

Plant = Callable[[World], None]

FENCE = "and l.last_lock_guid = :sync_guid and l.locked"
NO_FENCE = "and :sync_guid is not null"


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    plant: Plant
    seen_by: tuple[str, ...]
    """The checkers of which at least one must object."""


# In the SQL.


def sql(statement: str, old: str, new: str = "") -> Plant:
    """Change the text of a statement; LookupError when the text has moved on and the mistake must be planted anew."""

    def plant(world: World) -> None:
        transitions = world.database.store._transitions
        original = transitions._statements[statement]
        text = " ".join(original.text.split())
        if old not in text:
            raise LookupError(f"{statement} does not say {old!r} any more")
        changed = replace(original, text=text.replace(old, new))
        transitions._statements = {**transitions._statements, statement: changed}

    return plant


def all_of(*plants: Plant) -> Plant:
    def plant(world: World) -> None:
        for one in plants:
            one(world)

    return plant


# In the protocol.


def asked_differently(name: str, change: Callable[[World, Callable[..., Any]], Callable[..., Any]]) -> Plant:
    """Let a transition be asked with other arguments than the product gives it."""

    def plant(world: World) -> None:
        transitions: Any = world.database.store._transitions
        setattr(transitions, name, change(world, getattr(transitions, name)))

    return plant


# In the code.


def edited(owner: Any, name: str, old: str, new: str) -> Plant:
    """Change the source of a function, or of a class's method or property, for as long as a run takes."""

    def plant(world: World) -> None:
        original = inspect.getattr_static(owner, name)
        function = original.fget if isinstance(original, property) else original
        source = textwrap.dedent(inspect.getsource(function))
        if old not in source:
            raise LookupError(f"{name} does not say {old!r} any more")
        made: dict[str, Any] = {}
        exec(compile(source.replace(old, new), f"<{name} with a mistake>", "exec"), function.__globals__, made)
        setattr(owner, name, made[name])
        world.undo.append(lambda: setattr(owner, name, original))

    return plant


# In the worker.


def worker(wrong: type[SimulatedWorker]) -> Plant:
    def plant(world: World) -> None:
        world.worker_type = wrong

    return plant


def often_restarted(world: World) -> None:
    world.plan.restarts_every_s = 5


def always_restarted(world: World) -> None:
    world.plan.restarts_every_s = 1


def often_stopped(world: World) -> None:
    world.plan.stops_every_s = 5


def beats_always(world: World) -> None:
    """Each shard is held for as long as many small batches take."""
    policy = replace(world.size.policy, heartbeat=timedelta(milliseconds=1), batch_max=1)
    world.size = replace(world.size, policy=policy)


def patient(world: World) -> None:
    world.size = replace(world.size, policy=replace(world.size.policy, stop_grace=timedelta(seconds=20)))
