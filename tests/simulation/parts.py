"""A part of the product in a run: what its clients and handlers do, and what must be true of it.

Actions are in every run. A seed switches on some of the parts beside them: few together reach states that all never do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from matrixsched.app import App
from simulation.actors import Behaviour, Client
from simulation.commit_checkers import Commit, Objections

if TYPE_CHECKING:
    from simulation.world import World

Call = Callable[[Client], Awaitable[None]]
N = TypeVar("N")


class Part:
    name: ClassVar[str]
    at_every_commit: ClassVar[Sequence[Callable[[Commit], Objections]]] = ()
    at_the_end: ClassVar[Sequence[Callable[[World], Objections]]] = ()

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance

    async def install(self, app: App) -> None:
        """Set up what is there before anybody works; nothing fails yet."""

    def register(self, app: App, host: str) -> None:
        """Make handlers known in a worker's process."""

    @property
    def behaviours(self) -> Mapping[str, Behaviour]:
        """How the handlers of actions behave that it adds."""
        return {}

    def options(self) -> dict[str, Any]:
        """What a client may say of an action that it schedules."""
        return {}

    @property
    def operations(self) -> Mapping[Call, float]:
        """What clients do, with how often; all that they do to actions together is 24."""
        return {}

    def committed(self, commit: Commit) -> None:
        """Take notes of a commit, before it is judged."""

    def unrest(self) -> Objections:
        """What is not at rest at the end of a run."""
        return iter(())


def notes_taken(world: World, kind: type[N]) -> N:
    """The notes of that kind, which one of the parts takes."""
    (notes,) = (one for part in world.parts if isinstance(one := getattr(part, "notes", None), kind))
    return notes


def with_part(part: type[Part]) -> Callable[[World], None]:
    """Prepare a world in which this part is, and no other; where one of its kind is on stage, that one."""

    def prepare(world: World) -> None:
        on_stage = [one for one in world.parts if isinstance(one, part) and type(one) is not part]
        world.parts = on_stage or [part(world)]

    return prepare
