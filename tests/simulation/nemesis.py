"""Who brings faults into a run: at every call of the store, at every step of a host, and whenever it likes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import anyio

from simulation.faults import IDLE_WEIGHT, STOP_S, Fault, FaultPlan

if TYPE_CHECKING:
    from simulation.world import Process, World

CRASHES_MAX = 20
CLIENT_WEIGHT = 3.0
REFUSED_IN_A_ROW = 4
"""At most: nothing may be lost by so many, and a database that refuses for longer is away."""
LONGER_THAN_LEASE_S = 13.0
"""For how long an aimed stop holds its host: attempts and shards are leased for ten seconds."""


class Nemesis(Protocol):
    def at_call(self, host: str, transition: str) -> Fault | None:
        """What happens to this call of the store."""
        ...

    def at_step(self, host: str) -> None:
        """Before a host runs on: it may be crashed or stopped here."""
        ...

    def rages(self) -> AbstractAsyncContextManager[None]:
        """Strikes at any time as long as this is entered."""
        ...


class RandomNemesis:
    """Strikes by chance, as the plan of a seed says."""

    def __init__(self, world: World, plan: FaultPlan) -> None:
        self._world = world
        self._chance = world.chance
        self.plan = plan
        self._crashes = 0
        self._refused: Counter[tuple[str, str]] = Counter()
        """How often in a row such a call of a host was."""

    def at_call(self, host: str, transition: str) -> Fault | None:
        fault = self.plan.draw(self._chance, transition)
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER) and not self._may_crash():
            return None
        if fault not in (Fault.BUSY, Fault.UNAVAILABLE):
            self._refused.pop((host, transition), None)
            return fault
        self._refused[host, transition] += 1
        return fault if self._refused[host, transition] <= REFUSED_IN_A_ROW else None

    def at_step(self, host: str) -> None:
        if self.plan.step_rate == 0 or self._chance.random() >= self.plan.step_rate * self._step_weight(host):
            return
        if self._chance.random() < 0.5:
            if self._may_crash():
                self._world.crash(host, Fault.CRASH, "at an await")
        else:
            self._world.stop(host, self._chance.uniform(0, STOP_S))

    def _step_weight(self, host: str) -> float:
        """Clients take few steps; workers that hold nothing take very many."""
        process = self._world.processes.get(host)
        if process is None:
            return CLIENT_WEIGHT
        return 1.0 if len(process.worker.leases) else IDLE_WEIGHT

    def _may_crash(self) -> bool:
        self._crashes += 1
        return self._crashes <= CRASHES_MAX

    @asynccontextmanager
    async def rages(self) -> AsyncIterator[None]:
        plan = self.plan
        async with anyio.create_task_group() as evil:
            for every_s, strike in (
                (plan.crashes_every_s, self._crash_somebody),
                (plan.stops_every_s, self._stop_somebody),
                (plan.restarts_every_s, self._restart_somebody),
            ):
                if every_s is not None:
                    evil.start_soon(self._strike_often, every_s, strike)
            yield
            evil.cancel_scope.cancel()

    async def _strike_often(self, every_s: float, strike: Callable[[Process], None]) -> None:
        world = self._world
        while True:
            await world.sleep_up_to(every_s * 2)
            running = [process for host, process in world.processes.items() if not world.loop.is_held(host)]
            if running:
                strike(self._chance.choice(running))

    def _crash_somebody(self, process: Process) -> None:
        if self._may_crash():
            self._world.crash(process.host, Fault.CRASH)

    def _stop_somebody(self, process: Process) -> None:
        self._world.stop(process.host, self._chance.uniform(0, STOP_S))

    def _restart_somebody(self, process: Process) -> None:
        at_once = self._chance.random() < 0.3
        self._world.history.note("RESTART", process.host, at_once)
        process.worker.stop(at_once=at_once)


class Where(StrEnum):
    CALL = "call"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Aim:
    """One fault at one place: the so many-th call of the store, or step, of a kind of hosts, counted from 0."""

    where: Where
    hosts: str
    """What the names of these hosts begin with."""
    number: int
    fault: Fault
    transition: str | None = None
    """Only calls for that are counted."""

    def __str__(self) -> str:
        return f"{self.hosts} {self.where} {self.number} {self.fault}"

    @classmethod
    def read(cls, text: str) -> Aim:
        """One that was written as `str` does, which is the only way to write it."""
        try:
            hosts, where, number, fault = text.split(maxsplit=3)
            return cls(Where(where), hosts, int(number), Fault(fault))
        except ValueError:
            raise ValueError(
                f'{text!r} is no aim, as "worker call 12 crash after" or "client step 3 stop" are'
            ) from None


class AimedNemesis:
    """Strikes at the places it was told, and counts those it passes."""

    def __init__(self, world: World, aims: Sequence[Aim], hosts: Sequence[str]) -> None:
        """`hosts` are the kinds of hosts whose places are counted."""
        self._world = world
        self._left = list(aims)
        self._hosts = hosts
        self.passed: Counter[tuple[Where, str, str | None]] = Counter()
        """How many places there were of each kind: of calls all together, and those for each transition."""

    def at_call(self, host: str, transition: str) -> Fault | None:
        aim = self._pass(Where.CALL, host) or self._pass(Where.CALL, host, transition)
        return None if aim is None else aim.fault

    def at_step(self, host: str) -> None:
        aim = self._pass(Where.STEP, host)
        if aim is None:
            return
        if aim.fault is Fault.CRASH:
            self._world.crash(host, Fault.CRASH, "at an await")
        else:
            self._world.stop(host, LONGER_THAN_LEASE_S)

    def _pass(self, where: Where, host: str, transition: str | None = None) -> Aim | None:
        kind = next((kind for kind in self._hosts if host.startswith(kind)), None)
        if kind is None:
            return None
        place = where, kind, transition
        number = self.passed[place]
        self.passed[place] += 1
        for aim in self._left:
            if (aim.where, aim.hosts, aim.transition, aim.number) == (*place, number):
                self._left.remove(aim)
                return aim
        return None

    @asynccontextmanager
    async def rages(self) -> AsyncIterator[None]:
        yield
