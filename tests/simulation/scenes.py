"""Short runs that are played again and again, each time with another fault: one for every way that work takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from simulation.actors import Client
from simulation.parts import Part
from simulation.staged_parts import (
    KEY,
    TEMPLATE,
    OneBatch,
    OneLimit,
    OnePlace,
    OneTemplate,
    PlaceAskedFor,
    PlaceForgotten,
    ToldOnce,
    staged,
)


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    play: Callable[[Client], Awaitable[None]]
    lasts_s: float
    """For so long faults may happen: until all of it is done if none does."""
    parts: tuple[type[Part], ...] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    """What is different from the usual policy of the workers."""


# What is played.


async def _one_action(client: Client) -> None:
    await client.ask("schedule", "a", handler="quick")


async def _an_action_that_fails(client: Client) -> None:
    await client.ask("schedule", "a", handler="flaky")


async def _changed_while_it_runs(client: Client) -> None:
    await client.ask("schedule", "a", handler="slow")
    await anyio.sleep(0.5)
    await client.ask("schedule", "a", handler="quick")


async def _called_off(client: Client) -> None:
    await client.ask("schedule", "a", handler="quick", delay_s=1)
    await client.ask("schedule", "b", handler="slow")
    await anyio.sleep(0.5)
    await client.ask("cancel", "a")
    await client.ask("cancel", "b")


async def _repeated(client: Client) -> None:
    await client.schedule_repeated()


async def _many_at_once(client: Client) -> None:
    await client.schedule_many()
    await client.ask("run_now", "a")


# … of gates.


async def _two_under_a_limit(client: Client) -> None:
    await client.ask("schedule", "a", limit=KEY)
    await client.ask("schedule", "b", limit=KEY)


async def _a_message_of_a_campaign(client: Client) -> None:
    await client.ask("schedule", "a", handler="bulk", template=TEMPLATE)


async def _told_to_slow_down(client: Client) -> None:
    await client.ask("schedule", "a", handler="told", limit=KEY)
    await client.ask("schedule", "b", delay_s=0.3, limit=KEY)


# … of semaphores.


async def _two_for_one_place(client: Client) -> None:
    part = staged(client.world, OnePlace)
    await part.come(client, "task-a")
    await part.come(client, "task-b")


async def _a_place_that_lapses(client: Client) -> None:
    part = staged(client.world, PlaceForgotten)
    await part.come(client, "task-a")
    await part.come(client, "task-b")


async def _asked_to_step_back(client: Client) -> None:
    part = staged(client.world, PlaceAskedFor)
    await part.come(client, "task-a")
    await anyio.sleep(0.3)
    await part.come(client, "task-b", priority=1.0)


# … of queues.


async def _a_batch(client: Client) -> None:
    await staged(client.world, OneBatch).put_letters(client)


async def _moved_into_a_queue(client: Client) -> None:
    await staged(client.world, OneBatch).deliver_parcel(client, "a")


SCENES: tuple[Scene, ...] = (
    Scene("one action", _one_action, lasts_s=0.5),
    Scene("an action that fails", _an_action_that_fails, lasts_s=4),
    Scene("changed while it runs", _changed_while_it_runs, lasts_s=4),
    Scene("called off", _called_off, lasts_s=4),
    Scene("repeated", _repeated, lasts_s=20),
    Scene("many at once", _many_at_once, lasts_s=8),
    Scene("under a limit", _two_under_a_limit, lasts_s=0.6, parts=(OneLimit,)),
    Scene("campaign", _a_message_of_a_campaign, lasts_s=0.5, parts=(OneTemplate,)),
    Scene("told to slow down", _told_to_slow_down, lasts_s=1.3, parts=(ToldOnce,)),
    Scene("two for one place", _two_for_one_place, lasts_s=0.6, parts=(OnePlace,)),
    Scene("asked to step back", _asked_to_step_back, lasts_s=0.8, parts=(PlaceAskedFor,)),
    Scene("a place that lapses", _a_place_that_lapses, lasts_s=1.8, parts=(PlaceForgotten,)),
    Scene("a batch", _a_batch, lasts_s=0.4, parts=(OneBatch,)),
    Scene("moved into a queue", _moved_into_a_queue, lasts_s=0.4, parts=(OneBatch,)),
)
