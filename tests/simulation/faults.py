"""Which faults a seed has, and the store that lets them happen at every call."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from matrixsched.errors import DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from matrixsched.store.news import Hearing
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.wrapper import StoreWrapper

if TYPE_CHECKING:
    from simulation.history import FaultNote
    from simulation.world import World

T = TypeVar("T")

LATENCY_S = 0.02
"""An ordinary call takes up to this long."""
SLOW_S = 14.0
LATE_S = 20.0
STOP_S = 30.0
"""How long each lasts at most: well over a lease, which is ten seconds at most."""


class Fault(StrEnum):
    """What can happen to a call of the store, and to a host."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    UNAVAILABLE = "unavailable"
    BUSY = "busy"
    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost"
    LATE = "late"
    SLOW_BEFORE = "slow before"
    SLOW_AFTER = "slow after"
    CRASH = "crash"
    STOP = "stop"


AT_STORE = (
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.UNAVAILABLE,
    Fault.BUSY,
    Fault.REQUEST_LOST,
    Fault.REPLY_LOST,
    Fault.LATE,
    Fault.SLOW_BEFORE,
    Fault.SLOW_AFTER,
)
_RATES_MAX = {
    Fault.CRASH_BEFORE: 0.02,
    Fault.CRASH_AFTER: 0.02,
    Fault.UNAVAILABLE: 0.15,
    Fault.BUSY: 0.15,
    Fault.REQUEST_LOST: 0.1,
    Fault.REPLY_LOST: 0.1,
    Fault.LATE: 0.1,
    Fault.SLOW_BEFORE: 0.04,
    Fault.SLOW_AFTER: 0.04,
}
_STEP_RATE_MAX = 0.003
IDLE_LOOKS = frozenset(
    {
        "acquire_shard",
        "changed_semaphores",
        "expire_waiting",
        "look_queues",
        "prune_actions",
        "prune_requests",
        "relist_lanes",
        "report_processors",
        "sweep_dead",
        "sweep_history",
        "sweep_tasks",
        "take_chore",
    }
)
"""Calls by which a worker asks again and again whether there is anything to do: mostly there is not."""
CORE_MARKS = ("move", "claim", "record", "extend", "give_back", "beat_shard", "schedule", "reschedule", "release_shard")
PART_MARKS = (
    "balance",
    "claim_gated",
    "done_tasks",
    "enqueue_tasks",
    "extend_tasks",
    "plan_window",
    "put_tasks",
    "record_deliveries",
    "release_tasks",
    "retry_tasks",
    "take_tasks",
)
"""Calls by which work is done. Each seed aims at a few: were it to strike all of them often, nothing would get far."""
IDLE_WEIGHT, MARKED_WEIGHT = 0.1, 6.0
_STRUCK_MAX = 0.6
"""However many kinds are switched on: some calls must come through."""


@dataclass(slots=True)
class FaultPlan:
    """What a seed has switched on; nothing for a run without faults."""

    rates: dict[Fault, float] = field(default_factory=dict)
    """The share of store calls that each fault hits; of idle looks it is less, of marked calls more."""
    marks: frozenset[str] = frozenset()
    """The transitions this seed aims at."""
    crashes_every_s: float | None = None
    stops_every_s: float | None = None
    restarts_every_s: float | None = None
    """Orderly ones: not a fault, and no excuse for anything."""
    step_rate: float = 0.0
    """The share of steps, from one await to the next, before which a host at work is crashed or stopped."""

    @property
    def is_faultless(self) -> bool:
        strikes = self.crashes_every_s is not None or self.stops_every_s is not None or self.step_rate > 0
        return not self.rates and not strikes

    def draw(self, chance: Random, transition: str) -> Fault | None:
        """What happens to such a call."""
        weight = self._weight_of(transition)
        point = chance.random()
        for fault, rate in self.rates.items():
            if point < rate * weight:
                return fault
            point -= rate * weight
        return None

    def _weight_of(self, transition: str) -> float:
        if transition in IDLE_LOOKS:
            return IDLE_WEIGHT
        all_rates = sum(self.rates.values())
        return min(MARKED_WEIGHT, max(1.0, _STRUCK_MAX / all_rates)) if all_rates and transition in self.marks else 1.0


def draw_plan(chance: Random) -> FaultPlan:
    """A random subset of faults, each at a random rate: few kinds together reach states that all kinds never do."""
    restarts = chance.uniform(4, 25) if chance.random() < 0.5 else None
    if chance.random() < 0.12:
        return FaultPlan(restarts_every_s=restarts)
    share = chance.uniform(0.15, 0.8)
    return FaultPlan(
        rates={fault: _RATES_MAX[fault] * chance.random() for fault in AT_STORE if chance.random() < share},
        marks=frozenset((*chance.sample(CORE_MARKS, k=3), *chance.sample(PART_MARKS, k=3))),
        crashes_every_s=chance.uniform(5, 40) if chance.random() < share else None,
        stops_every_s=chance.uniform(5, 40) if chance.random() < share else None,
        restarts_every_s=restarts,
        step_rate=_STEP_RATE_MAX * chance.random() if chance.random() < share else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Noted(Transition[T]):
    """A transition of the protocol that remembers what it was asked with."""

    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


class NotedTransitions:
    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions

    def __getattr__(self, name: str) -> Callable[..., Transition[Any]]:
        method = getattr(self._transitions, name)

        def noted(*arguments: Any, **options: Any) -> Transition[Any]:
            plain = method(*arguments, **options)
            return Noted(plain.name, plain.begin, arguments, options)

        return noted


class FaultyStore(StoreWrapper):
    """A host's connection to the one database of the world."""

    def __init__(self, world: World, host: str) -> None:
        super().__init__(world.database.store)
        self._world = world
        self._host = host
        self._transitions: Any = NotedTransitions(self._inner.transitions)

    @property
    def transitions(self) -> Transitions:
        return self._transitions  # type: ignore[no-any-return]

    async def open(self) -> None:
        """The database is there before the first host."""

    async def close(self) -> None:
        """And outlives the last."""

    def sibling(self) -> Store:
        return FaultyStore(self._world, self._host)

    async def watch(self, changed: Hearing) -> None:
        with self._world.told_of_changes(changed, copy_context()):
            await anyio.sleep_forever()

    async def run(self, transition: Transition[T]) -> T:
        world, host = self._world, self._host
        if world.is_over:
            raise DatabaseUnavailable("the run is over")
        asked_at = world.clock.now()
        await world.sleep_up_to(LATENCY_S)
        struck = world.draw_fault(host, transition.name)
        await self._happens_before(struck, transition)
        answer = await world.carry_out(host, transition, asked_at)
        await self._happens_after(struck)
        await world.sleep_up_to(LATENCY_S)
        return answer

    async def _happens_before(self, struck: FaultNote | None, transition: Transition[Any]) -> None:
        if struck is None:
            return
        world = self._world
        match struck.kind:
            case Fault.CRASH_BEFORE:
                await world.crash_here(self._host)
            case Fault.UNAVAILABLE:
                raise DatabaseUnavailable("simulated: nothing was done")
            case Fault.BUSY:
                raise DatabaseBusy("simulated: nothing was done")
            case Fault.REQUEST_LOST:
                await world.sleep_up_to(1)
                raise OutcomeUnknown("simulated: the request was lost")
            case Fault.LATE:
                world.carry_out_later(struck, transition)
                await world.sleep_up_to(1)
                raise OutcomeUnknown("simulated: the request is under way")
            case Fault.SLOW_BEFORE:
                await world.be_slow(struck)

    async def _happens_after(self, struck: FaultNote | None) -> None:
        if struck is None:
            return
        world = self._world
        match struck.kind:
            case Fault.CRASH_AFTER:
                await world.crash_here(self._host)
            case Fault.REPLY_LOST:
                await world.sleep_up_to(1)
                raise OutcomeUnknown("simulated: the reply was lost")
            case Fault.SLOW_AFTER:
                await world.be_slow(struck)
