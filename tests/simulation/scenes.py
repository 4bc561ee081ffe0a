"""Short runs that are played again and again, each time with another fault: one for every way that work takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio

from matrixsched.calls import call
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import every
from simulation.actors import KNOWN_TO_ONE, Behaviour, Client
from simulation.database import EPOCH
from simulation.parts import Part
from simulation.scripts import fails, kills_its_worker, scripted, takes
from simulation.staged_parts import (
    KEY,
    TEMPLATE,
    LongBatch,
    OneBatch,
    OneLimit,
    OnePlace,
    OneTemplate,
    PlaceAskedFor,
    PlaceForgotten,
    ToldOnce,
    staged,
)

if TYPE_CHECKING:
    from simulation.world import World


PATIENCE_MS = 30_000
"""For so long a client waits for a claim that a fault may keep back."""


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    play: Callable[[Client], Awaitable[None]]
    lasts_s: float
    """For so long faults may happen: until all of it is done if none does."""
    parts: tuple[type[Part], ...] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    """What is different from the usual policy of the workers."""
    handlers: Callable[[World], Mapping[str, Behaviour]] = lambda world: {}
    """Handlers of its own, made anew each time it is played."""
    shards_named: float = 0.0
    """How many of the workers hear in which shard something is new."""


# What is played.


async def _one_action(client: Client) -> None:
    await client.ask("schedule", "a", handler="quick")


async def _one_while_all_rest(client: Client) -> None:
    """Workers hear of it when they have found nothing: the first takes its shard by the move."""
    await anyio.sleep(0.3)
    await client.ask("schedule", "a", handler="quick")


async def _an_action_that_fails(client: Client) -> None:
    await client.ask("schedule", "a", handler="fails once")


def _fails_once(world: World) -> dict[str, Behaviour]:
    return {"fails once": scripted(fails, retry=Retry(max_attempts=3, first_delay=timedelta(milliseconds=300)))}


async def _changed_while_it_runs(client: Client) -> None:
    await client.ask("schedule", "a", handler="takes long")
    await anyio.sleep(0.5)
    await client.ask("schedule", "a", handler="quick")


def _takes_long(world: World) -> dict[str, Behaviour]:
    """Longer than its lease, which is prolonged or lost meanwhile."""
    return {"takes long": scripted(takes(1.3))}


async def _called_off(client: Client) -> None:
    await client.ask("schedule", "a", handler="quick", delay_s=1)
    await client.ask("schedule", "b", handler="takes long")
    await anyio.sleep(0.5)
    await client.ask("cancel", "a")
    await client.ask("cancel", "b")


async def _repeated(client: Client) -> None:
    repeat = every(timedelta(seconds=1), anchor=EPOCH)
    await client.ask("schedule", "a", handler="quick", repeat=repeat, expires_at=EPOCH + timedelta(seconds=2.5))


async def _many_at_once(client: Client) -> None:
    await _schedule_together(client)
    await client.ask("run_now", "a")


async def _schedule_together(client: Client) -> None:
    ids = ("a", "b", "c")
    with client._called("schedule", *ids, delay_s=0.4) as operation:
        calls = [call("quick", id=id, delay=timedelta(seconds=0.4)) for id in ids]
        await client._app.schedule_many(calls)
        client._ok(operation, True)


async def _stopped_in_order(client: Client) -> None:
    """It is running when all workers are told to stop, and is not done in time."""
    await client.ask("schedule", "a", handler="takes long")
    await _when_claimed(client.world, "a")
    for process in client.world.processes.values():
        process.worker.stop()


async def _when_claimed(world: World, id: str) -> None:
    for _ in range(PATIENCE_MS):
        if any(claimed.claim.action_id == id for claimed in world.history.claims.values()):
            return
        await anyio.sleep(0.001)


async def _out_of_time(client: Client) -> None:
    await client.ask("schedule", "a", handler="hangs once")


def _hangs_once(world: World) -> dict[str, Behaviour]:
    retry = Retry(max_attempts=2, first_delay=timedelta(milliseconds=300))
    return {"hangs once": scripted(takes(30), timeout_s=0.5, retry=retry)}


async def _known_to_one_only(client: Client) -> None:
    await client.ask("schedule", "a", handler=KNOWN_TO_ONE)


async def _known_to_nobody(client: Client) -> None:
    """It waits until it expires."""
    expires_at = client.world.clock.now() + timedelta(seconds=0.6)
    await client.ask("schedule", "a", handler="unheard of", expires_at=expires_at)


async def _replaced_as_seen(client: Client) -> None:
    """By the version that was seen; and once more, when that is not there any more."""
    await client.ask("schedule", "a", delay_s=0.6)
    with client._called("get", "a") as operation:
        seen = (await client._app.get("a")).meta.guid
        client._ok(operation, False)
        await client.ask("schedule", "a", delay_s=0.4, expected_guid=seen)
        await client.ask("schedule", "a", expected_guid=seen)


async def _quarantined(client: Client) -> None:
    await client.ask("schedule", "a", handler="deadly")


def _deadly(world: World) -> dict[str, Behaviour]:
    return {"deadly": scripted(kills_its_worker(world), retry=Retry(max_interruptions=0))}


# … of gates.


async def _some_under_a_limit(client: Client) -> None:
    """They come due together, so that whoever claims them has some whose slots are still to begin."""
    ids = ("a", "b", "c")
    with client._called("schedule", *ids, delay_s=0.2) as operation:
        calls = [call("quick", id=id, delay=timedelta(seconds=0.2), limit=KEY) for id in ids]
        await client._app.schedule_many(calls)
        client._ok(operation, True)


async def _stopped_before_its_slot(client: Client) -> None:
    """One is claimed, and waits for its slot to begin, when all workers are told to stop."""
    await _some_under_a_limit(client)
    await _when_claimed(client.world, "a")
    for process in client.world.processes.values():
        process.worker.stop(at_once=True)


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


async def _a_long_batch(client: Client) -> None:
    await staged(client.world, LongBatch).put_letters(client)


async def _moved_into_a_queue(client: Client) -> None:
    await staged(client.world, OneBatch).deliver_parcel(client, "a")


SHORT_LEASES = {
    "attempt_lease": timedelta(seconds=1),
    "lease_margin": timedelta(seconds=0.1),
    "shard_lease": timedelta(seconds=1),
    "heartbeat": timedelta(seconds=0.3),
}
BEATS_ALWAYS = {"heartbeat": timedelta(milliseconds=1), "batch_max": 1}
STOPS_SOON = {"stop_grace": timedelta(seconds=0.2)}
LOOKS_AHEAD = {"slots_ahead": timedelta(seconds=1)}
TIDIES_OFTEN = {"tidy_every": timedelta(seconds=0.4)}

SCENES: tuple[Scene, ...] = (
    Scene("one action", _one_action, lasts_s=0.5),
    Scene("told in which shard", _one_while_all_rest, lasts_s=0.8, shards_named=1.0),
    Scene("an action that fails", _an_action_that_fails, lasts_s=1, handlers=_fails_once),
    Scene("changed while it runs", _changed_while_it_runs, lasts_s=2, policy=SHORT_LEASES, handlers=_takes_long),
    Scene("called off", _called_off, lasts_s=2, policy=SHORT_LEASES, handlers=_takes_long),
    Scene("repeated", _repeated, lasts_s=3),
    Scene("many at once", _many_at_once, lasts_s=1),
    Scene("held over heartbeats", _schedule_together, lasts_s=1, policy=BEATS_ALWAYS),
    Scene("stopped in order", _stopped_in_order, lasts_s=2, policy=STOPS_SOON, handlers=_takes_long),
    Scene("out of time", _out_of_time, lasts_s=2, handlers=_hangs_once),
    Scene("known to one only", _known_to_one_only, lasts_s=1.5),
    Scene("known to nobody", _known_to_nobody, lasts_s=2, policy=TIDIES_OFTEN),
    Scene("replaced as seen", _replaced_as_seen, lasts_s=1.5),
    Scene("quarantined", _quarantined, lasts_s=3, policy=SHORT_LEASES, handlers=_deadly),
    Scene("under a limit", _some_under_a_limit, lasts_s=0.6, parts=(OneLimit,)),
    Scene("stopped before its slot", _stopped_before_its_slot, lasts_s=2, parts=(OneLimit,), policy=LOOKS_AHEAD),
    Scene("campaign", _a_message_of_a_campaign, lasts_s=0.5, parts=(OneTemplate,)),
    Scene("told to slow down", _told_to_slow_down, lasts_s=1.3, parts=(ToldOnce,)),
    Scene("two for one place", _two_for_one_place, lasts_s=0.6, parts=(OnePlace,)),
    Scene("asked to step back", _asked_to_step_back, lasts_s=0.8, parts=(PlaceAskedFor,)),
    Scene("a place that lapses", _a_place_that_lapses, lasts_s=2.4, parts=(PlaceForgotten,)),
    Scene("a batch", _a_batch, lasts_s=0.4, parts=(OneBatch,)),
    Scene("a long batch", _a_long_batch, lasts_s=2, parts=(LongBatch,)),
    Scene("moved into a queue", _moved_into_a_queue, lasts_s=0.4, parts=(OneBatch,)),
)
