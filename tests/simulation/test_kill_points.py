"""A worker or a client is killed at each step of the protocol: exactly what it leaves behind, and what comes of it.

The numbers are those of the catalogue of faults: K1 to K20. A statement that is not committed leaves nothing behind, so
a kill inside of it and a kill before it are one case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import anyio
import pytest

from matrixsched.app import App
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import every
from simulation.actors import Behaviour, Client, register_handlers
from simulation.crash_points import stage
from simulation.database import EPOCH, Snapshot, moment
from simulation.faults import Fault
from simulation.history import Reply
from simulation.loop import HOST
from simulation.nemesis import Aim, Where
from simulation.parts import Part
from simulation.scenes import Scene
from simulation.world import Result, World, Wreck

BEFORE, AFTER = Fault.CRASH_BEFORE, Fault.CRASH_AFTER
LOOKS_MAX = 10
LONGER_THAN_A_LOOK_S = 0.3
"""So that the shard is released by then."""
BEATS_ALWAYS = {"heartbeat": timedelta(milliseconds=1), "batch_max": 1}
CLAIMED: dict[str, Any] = {"left": ("claimed",), "interrupted": 1}
CALLED_OFF: dict[str, Any] = {"state": "cancelled", "runs": 0, "ticks": (), "effects": 0}


class FatalHandlers(Part):
    """Handlers of which the first call is the last thing that its process does."""

    name = "fatal handlers"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.effects = 0
        """What was done outside, and cannot be undone."""

    @property
    def behaviours(self) -> Mapping[str, Behaviour]:
        only_once = Retry(max_attempts=1)
        return {
            "plain": Behaviour(self._plain, retry=only_once),
            "dies before its effect": Behaviour(self._die_before, retry=only_once),
            "dies after its effect": Behaviour(self._die_after, retry=only_once),
        }

    def register(self, app: App, host: str) -> None:
        register_handlers(app, self._world, host, self.behaviours)

    async def _plain(self, chance: Random) -> None:
        await anyio.sleep(LONGER_THAN_A_LOOK_S)
        self._have_effect()

    async def _die_before(self, chance: Random) -> None:
        await anyio.sleep(LONGER_THAN_A_LOOK_S)
        await self._die_once()
        self._have_effect()

    async def _die_after(self, chance: Random) -> None:
        await anyio.sleep(LONGER_THAN_A_LOOK_S)
        self._have_effect()
        await self._die_once()

    def _have_effect(self) -> None:
        if not self._world.is_over:  # then only what is left is unwound
            self.effects += 1

    async def _die_once(self) -> None:
        if not self._world.wrecks:
            self._world.crash(HOST.get(), Fault.CRASH, "in a handler")
            await anyio.sleep_forever()


async def due_now(client: Client) -> None:
    await client.ask("schedule", "a", handler="plain")


async def due_soon(client: Client) -> None:
    await client.ask("schedule", "a", handler="plain", delay_s=1)


async def two_due_now(client: Client) -> None:
    async with anyio.create_task_group() as both:
        for id in ("a", "b"):
            both.start_soon(lambda id=id: client.ask("schedule", id, handler="plain"))


async def replaced(client: Client) -> None:
    """The row of the first version is dead when its time comes."""
    await client.ask("schedule", "a", handler="plain", delay_s=1)
    await anyio.sleep(0.3)
    await client.ask("schedule", "a", handler="plain", delay_s=3)


async def cancelled_when_moved(client: Client) -> None:
    """Its row is dead when its time comes."""
    await client.ask("schedule", "a", handler="plain", delay_s=1)
    await anyio.sleep(0.3)
    await client.ask("cancel", "a")


async def ticking(client: Client) -> None:
    """Two ticks, and the end."""
    repeat = every(timedelta(seconds=2), anchor=EPOCH)
    await client.ask("schedule", "a", handler="plain", repeat=repeat, expires_at=EPOCH + timedelta(seconds=5))


def with_handler(name: str) -> Callable[[Client], Awaitable[None]]:
    async def play(client: Client) -> None:
        await client.ask("schedule", "a", handler=name)

    return play


@dataclass(frozen=True, slots=True)
class KillPoint:
    number: str
    what: str
    play: Callable[[Client], Awaitable[None]]
    fault: Fault | None
    transition: str = ""
    hosts: str = "worker"
    nth: int | None = 0
    """Which of these calls; None: the first at which the action is there."""
    left: tuple[str, ...] = ("incoming",)
    """Where the rows of the action are afterwards."""
    locked: bool = False
    state: str = "done"
    interrupted: int = 0
    runs: int = 1
    """Calls of the handler in the end."""
    ticks: tuple[int, ...] = (0,)
    """Those that it was called for."""
    effects: int = 1
    policy: Mapping[str, Any] = field(default_factory=dict)
    lasts_s: float = 2.5

    def __str__(self) -> str:
        return f"{self.number} {self.what}"

    def staged(self) -> World:
        """The scene, played to its end."""
        for nth in range(LOOKS_MAX) if self.nth is None else [self.nth]:
            aims = [] if self.fault is None else [Aim(Where.CALL, self.hosts, nth, self.fault, self.transition)]
            world = staged(self.play, aims, self.policy, self.lasts_s)
            result = world.run()
            assert not result.violations, result.violations[0]
            if self.nth is not None or "a" in world.wrecks[0].snapshot.actions:
                return world
        raise AssertionError(f"no {self.transition} came after the action")


dies_before, dies_after = with_handler("dies before its effect"), with_handler("dies after its effect")

KILL_POINTS = (
    KillPoint("K1", "before the shard is taken", due_now, BEFORE, "acquire_shard", nth=None),
    KillPoint("K2", "the shard is taken, and nobody knows", due_now, AFTER, "acquire_shard", nth=None, locked=True),
    KillPoint("K3", "before anything is read", due_now, BEFORE, "move", locked=True),
    KillPoint("K4, K5", "before the move is committed", due_soon, BEFORE, "move", locked=True),
    KillPoint("K6", "moved, and nobody knows", due_soon, AFTER, "move", left=("processing",), locked=True),
    KillPoint("K8, K11", "before the claim is committed", due_soon, BEFORE, "claim", left=("processing",), locked=True),
    KillPoint(
        "K9", "before a dead row goes", replaced, BEFORE, "move", nth=1, left=("incoming", "processing"), locked=True
    ),
    KillPoint("K9", "a dead row is gone", replaced, AFTER, "move", nth=1, left=("processing",), locked=True),
    KillPoint(
        "K9",
        "before a dead row goes that was due",
        cancelled_when_moved,
        BEFORE,
        "claim",
        left=("processing",),
        locked=True,
        **CALLED_OFF,
    ),
    KillPoint(
        "K9",
        "a dead row that was due is gone",
        cancelled_when_moved,
        AFTER,
        "claim",
        left=(),
        locked=True,
        **CALLED_OFF,
    ),
    KillPoint("K10, K12", "claimed, and not called", due_soon, AFTER, "claim", **CLAIMED, locked=True),
    KillPoint("K13", "in the handler, before its effect", dies_before, None, **CLAIMED, runs=2),
    KillPoint("K13", "in the handler, after its effect", dies_after, None, **CLAIMED, runs=2, effects=2),
    KillPoint("K14, K15", "the handler has returned", due_soon, BEFORE, "record", **CLAIMED, runs=2, effects=2),
    KillPoint("K16", "recorded, and nobody knows", due_soon, AFTER, "record", left=()),
    KillPoint(
        "K16",
        "a tick is recorded",
        ticking,
        AFTER,
        "record",
        left=("processing",),
        runs=2,
        ticks=(0, 1),
        effects=2,
        lasts_s=6,
    ),
    KillPoint("K17", "before the release", due_soon, BEFORE, "release_shard", left=("processing",), locked=True),
    KillPoint("K17", "the shard is released", due_soon, AFTER, "release_shard", left=("processing",)),
    KillPoint(
        "K18", "before a heartbeat", due_now, BEFORE, "beat_shard", **CLAIMED, locked=True, runs=2, policy=BEATS_ALWAYS
    ),
    KillPoint(
        "K18", "after a heartbeat", due_now, AFTER, "beat_shard", **CLAIMED, locked=True, runs=2, policy=BEATS_ALWAYS
    ),
)


@pytest.mark.parametrize("point", KILL_POINTS, ids=str)
def test_a_killed_worker_leaves_exactly_this_behind(point: KillPoint) -> None:
    world = point.staged()
    (wreck,) = world.wrecks
    assert rows(wreck.snapshot, "a") == list(point.left)
    assert bool(wreck.locks) == point.locked
    assert_due_as_it_stands(world, wreck)
    assert_taken_over_in_time(world, wreck)
    assert_ended(world, "a", point.state, interrupted=point.interrupted, runs=point.runs)
    assert_one_key_for_each_tick(world, point.ticks)
    assert fatal_handlers(world).effects == point.effects


def test_a_shard_that_nobody_worked_on_is_the_last_to_be_taken_again() -> None:
    """K3: whoever dies with a shard in hands does not make others starve."""

    def with_shards(world: World) -> None:
        world.size = replace(world.size, shards=3)

    scene = Scene("", due_now, 2.5, (FatalHandlers,))
    world = stage(scene, [Aim(Where.CALL, "worker", 0, BEFORE, "move")], prepare=with_shards)
    assert not world.run().violations
    (wreck,) = world.wrecks
    (lock,) = wreck.locks
    assert wreck.shards_in_turn[-1] == lock.shard
    assert_ended(world, "a", "done", interrupted=0, runs=1)


def test_killed_in_the_midst_of_two_batches_both_are_whole() -> None:
    world = staged(two_due_now, [Aim(Where.CALL, "worker", 1, BEFORE, "move")], {"batch_max": 1}, 2.5)
    assert not world.run().violations
    (wreck,) = world.wrecks
    assert sorted(rows(wreck.snapshot, "a") + rows(wreck.snapshot, "b")) == ["claimed", "incoming"]
    for id in ("a", "b"):
        assert_ended(world, id, "done", runs=None)


@pytest.mark.parametrize("fault", [BEFORE, AFTER])
def test_what_a_killed_client_asked_can_be_asked_again(fault: Fault) -> None:
    """K19: written or not, the same request by another client is carried out once."""

    async def ask_twice(client: Client) -> None:
        world = client.world
        other = Client(world, "other", ["a"])
        world.loop.spawn("other", asked_after(1, other))
        await client.ask("schedule", "a", handler="plain", request_id="order 17")

    async def asked_after(seconds: float, client: Client) -> None:
        await anyio.sleep(seconds)
        await client.ask("schedule", "a", handler="plain", request_id="order 17")

    world = staged(ask_twice, [Aim(Where.CALL, "client", 0, fault, "schedule")], {}, 3)
    result = world.run()

    assert not result.violations, result.violations[0]
    (wreck,) = world.wrecks
    assert rows(wreck.snapshot, "a") == ([] if fault is BEFORE else ["incoming"])
    assert [operation.reply for operation in world.history.operations] == [Reply.OPEN, Reply.OK]
    assert world.history.operations[1].changed == (fault is BEFORE)
    assert_ended(world, "a", "done", interrupted=0, runs=1)


def test_all_are_killed_at_once() -> None:
    """K20: whatever was due runs, as soon as leases have ended and somebody is there."""

    async def schedule_and_kill_all(client: Client) -> None:
        for id in ("a", "b", "c"):
            await client.ask("schedule", id, handler="plain")
        world = client.world
        for host in [*world.processes, HOST.get()]:
            world.crash(host, Fault.CRASH, "with all the others")
        await anyio.sleep_forever()

    world = stage(Scene("", schedule_and_kill_all, 1, (FatalHandlers,)), [], keeps_trace=True)
    result = world.run()

    assert not result.violations, result.violations[0]
    assert len(world.wrecks) == 3
    for id in ("a", "b", "c"):
        assert_ended(world, id, "done", runs=None)
        assert_taken_over_in_time(world, world.wrecks[-1], id, somebody_came_at(result))


def somebody_came_at(result: Result) -> datetime:
    """When the first of the new workers wrote anything."""
    line = next(line for line in result.trace if line.split()[1] in ("worker0.1", "worker1.1"))
    minutes, seconds = line.split()[0].split(":")
    return EPOCH + timedelta(minutes=int(minutes), seconds=float(seconds))


def staged(
    play: Callable[[Client], Awaitable[None]], aims: Sequence[Aim], policy: Mapping[str, Any], lasts_s: float
) -> World:
    return stage(Scene("", play, lasts_s, (FatalHandlers,), policy), aims)


def fatal_handlers(world: World) -> FatalHandlers:
    (part,) = world.parts
    assert isinstance(part, FatalHandlers)
    return part


def rows(snapshot: Snapshot, id: str) -> list[str]:
    """Where the rows of an action are."""
    return sorted(
        "incoming" if row.is_incoming else "processing" if row.claimed_by is None else "claimed"
        for row in snapshot.rows_of(id)
    )


def assert_due_as_it_stands(world: World, wreck: Wreck) -> None:
    """A claimed row is due when the lease of its claim ends; any other of the present version when the action says."""
    for row in wreck.snapshot.rows_of("a"):
        if row.claimed_by is not None:
            (claimed,) = (one for one in world.history.claims.values() if str(one.claim.claimed_by) == row.claimed_by)
            assert moment(row.due) == claimed.at + world.size.policy.attempt_lease
        elif row.guid == wreck.snapshot.actions["a"].guid:
            assert row.due == wreck.snapshot.actions["a"].scheduled_at


def assert_taken_over_in_time(world: World, wreck: Wreck, id: str = "a", somebody_there_at: datetime = EPOCH) -> None:
    """The next claim comes when the row is due and the shard is free, which is at once or when its lease ends; not
    sooner, and later only by a rest and a second."""
    action = wreck.snapshot.actions.get(id)
    due = [row.due for row in wreck.snapshot.rows_of(id) if action is not None and row.guid == action.guid]
    if action is None or action.state != "live" or not due:
        return
    policy = world.size.policy
    locked_until = [moment(lock.heartbeat_at) + policy.shard_lease for lock in wreck.locks]
    expected = max(moment(due[0]), wreck.at, somebody_there_at, *locked_until)
    claimed_at = min(one.at for one in world.history.claims.values() if one.claim.action_id == id and one.at > wreck.at)
    assert expected <= claimed_at <= expected + policy.rest_max + timedelta(seconds=1)


def assert_one_key_for_each_tick(world: World, ticks: Sequence[int]) -> None:
    keys = {(run.tick, run.key) for run in world.history.runs}
    assert sorted(tick for tick, _ in keys) == list(ticks)
    assert len({key for _, key in keys}) == len(ticks)


def assert_ended(world: World, id: str, state: str, *, runs: int | None, interrupted: int | None = None) -> None:
    action = world.last_seen[id]
    assert action.state == state
    if runs is not None:
        assert len([run for run in world.history.runs if run.id == id]) == runs
    if interrupted is not None:
        assert action.interrupted == interrupted
