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
from matrixsched.store.news import News
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.wrapper import StoreWrapper

if TYPE_CHECKING:
    from simulation.world import World

T = TypeVar("T")

LATENCY_S = 0.02
"""An ordinary call takes up to this long."""
SLOW_S = 14.0
LATE_S = 20.0
STOP_S = 30.0
"""Two leases and three leases, as long as a lease is ten seconds."""


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
    Fault.CRASH_BEFORE: 0.01,
    Fault.CRASH_AFTER: 0.01,
    Fault.UNAVAILABLE: 0.1,
    Fault.BUSY: 0.1,
    Fault.REQUEST_LOST: 0.06,
    Fault.REPLY_LOST: 0.06,
    Fault.LATE: 0.06,
    Fault.SLOW_BEFORE: 0.02,
    Fault.SLOW_AFTER: 0.02,
}
_STEP_RATE_MAX = 0.0005


@dataclass(slots=True)
class FaultPlan:
    """What a seed has switched on; nothing for a run without faults."""

    rates: dict[Fault, float] = field(default_factory=dict)
    """The share of store calls that each fault hits."""
    crashes_every_s: float | None = None
    stops_every_s: float | None = None
    restarts_every_s: float | None = None
    """Orderly ones: not a fault, and no excuse for anything."""
    step_rate: float = 0.0
    """The share of steps, from one await to the next, before which a host is crashed or stopped."""

    @property
    def is_faultless(self) -> bool:
        strikes = self.crashes_every_s is not None or self.stops_every_s is not None or self.step_rate > 0
        return not self.rates and not strikes

    def draw(self, chance: Random) -> Fault | None:
        point = chance.random()
        for fault, rate in self.rates.items():
            if point < rate:
                return fault
            point -= rate
        return None


def draw_plan(chance: Random) -> FaultPlan:
    """A random subset of faults, each at a random rate: few kinds together reach states that all kinds never do."""
    restarts = chance.uniform(8, 40) if chance.random() < 0.3 else None
    if chance.random() < 0.12:
        return FaultPlan(restarts_every_s=restarts)
    share = chance.uniform(0.15, 0.8)
    return FaultPlan(
        rates={fault: _RATES_MAX[fault] * chance.random() for fault in AT_STORE if chance.random() < share},
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

    async def watch(self, changed: Callable[[News], None]) -> None:
        with self._world.told_of_changes(changed, copy_context()):
            await anyio.sleep_forever()

    async def run(self, transition: Transition[T]) -> T:
        world, host = self._world, self._host
        if world.is_over:
            raise DatabaseUnavailable("the run is over")
        asked_at = world.clock.now()
        await world.sleep_up_to(LATENCY_S)
        fault = world.draw_fault(host, transition.name)
        await self._happens_before(fault, transition)
        answer = await world.carry_out(host, transition, asked_at)
        await self._happens_after(fault, transition)
        await world.sleep_up_to(LATENCY_S)
        return answer

    async def _happens_before(self, fault: Fault | None, transition: Transition[Any]) -> None:
        world = self._world
        match fault:
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
                world.carry_out_later(self._host, transition)
                await world.sleep_up_to(1)
                raise OutcomeUnknown("simulated: the request is under way")
            case Fault.SLOW_BEFORE:
                await world.be_slow(self._host, transition.name)

    async def _happens_after(self, fault: Fault | None, transition: Transition[Any]) -> None:
        world = self._world
        match fault:
            case Fault.CRASH_AFTER:
                await world.crash_here(self._host)
            case Fault.REPLY_LOST:
                await world.sleep_up_to(1)
                raise OutcomeUnknown("simulated: the reply was lost")
            case Fault.SLOW_AFTER:
                await world.be_slow(self._host, transition.name)
