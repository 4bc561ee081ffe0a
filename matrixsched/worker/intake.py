"""The intake: look for a shard that has work, and let an iteration go over it; rest until there may be more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import cycle

import anyio
import anyio.lowlevel

from matrixsched.clock import Chance, Clock
from matrixsched.events import Events
from matrixsched.handlers import Handlers
from matrixsched.rules.action import parked_lane, suspect_lane
from matrixsched.rules.backoff import backoff_s
from matrixsched.rules.gates import SPREAD_NS
from matrixsched.rules.semaphore import semaphore_of
from matrixsched.store.store import Store
from matrixsched.store.values import Acquired, Taking, Turn
from matrixsched.worker.iteration import Iteration, Tools
from matrixsched.worker.pace import Wakeup
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.restraint import Restraint
from matrixsched.worker.runner import Runner

WAKE_JITTER_S = 0.001
"""Workers that wait for the same instant do not all ask at the same microsecond."""
CONTENDED_REST_S = 0.01
"""At most so long is rested while another worker passes the gates that this one looked at."""
LEAD_MAX = timedelta(seconds=1)
LEADS_AHEAD = 3
"""So many times the lead, slots are taken ahead at least: that is about how long it takes until the next claim."""
RELIST_EVERY = timedelta(seconds=1)
"""How often somebody looks for lanes before gates that are not listed, as those of a worker that was killed; …"""
RELIST_SHARE = 0.05
"""… where there are very many, less often: it takes no larger share of the time."""


BESIDE_FROM = 50
"""With so many rows in one iteration there is a crowd: a second one goes on beside the first, so that the database is
busy with one while handlers of the other are run."""

TURNS = (Turn.UNGATED, Turn.IMPORTANT, Turn.UNGATED, Turn.OLDEST)
"""Whose turn it is, one look after another: otherwise what waits for no gate would wait for all shards in which a
campaign begins, what is important for all that is not, or the other way round."""

TAKEN_WITHIN_MAX = timedelta(seconds=0.5)
TAKEN_WITHIN_LEASE = 1 / 6
"""A move that takes its shard begins within this time, or this share of an attempt's lease, or not at all."""


class Intake:
    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        runner: Runner,
        policy: WorkerPolicy,
        *,
        name: str,
        clock: Clock,
        chance: Chance,
        events: Events,
        found_lanes: Callable[[], None],
    ) -> None:
        """`found_lanes` is called when there are rows before gates at which nobody would have looked."""
        self._found_lanes = found_lanes
        self._tools = Tools(store, handlers, runner, policy, name, clock, chance, events)
        self._do = store.transitions
        self._handlers = handlers
        self._runner = runner
        self._policy = policy
        self._name = name
        self._clock = clock
        self._chance = chance
        self._fruitless = 0
        self._overdue = 0
        """So many looks in a row found nothing although something was due by the time of the answer."""
        self._turns = cycle(TURNS)
        self._relist_s = 0.0
        """How long it took to list all lanes."""
        self._gated_claim_s = 0.0
        self._gates_hold = True
        """Whether rows may wait before gates; nothing is known before the first look."""
        self.campaign_begins = False
        """Whether rows on the way to their gates lie among those that are due. They need no room, and there may be very
        many: no more being looked at than there is room for, they would hide those behind them for long."""
        self.looked_at: float | None = None
        """Monotonic: when this step last succeeded, which is what readiness goes by."""
        self.is_short_of_room = False
        """Whether there was too little room for something when it was last looked for work."""
        self.shards_held = 0
        """Locks in our hands now."""
        self._is_crowded = False
        self.beside_wakeup = Wakeup()
        self._told: set[int | None] = set()
        """The shards in which there is something new, as we were told since the last look; None: in any."""
        self._found_nothing = False
        self.restraint = Restraint(clock, chance, rest_max_s=policy.rest_max.total_seconds())

    def hear(self, shard: int | None) -> None:
        """There is something new, in this shard if it is known."""
        self._told.add(shard)

    def _only_told(self) -> int | None:
        """The only shard in which there can be anything: nothing was found before, and we were told of no other since.

        Whoever is never at rest looks everywhere: there may be shards of which nobody tells.
        """
        told, self._told = self._told, set()
        return told.pop() if self._found_nothing and len(told) == 1 else None

    async def step(self) -> float:
        """One sync iteration; the rest until there may be work again, and it is for this worker to look."""
        if (held_back_s := self.restraint.rest_s) > 0:
            return held_back_s
        rest_s = await self._look()
        self.looked_at = self._clock.monotonic()
        return max(rest_s, self.restraint.rest_s)

    async def step_beside(self) -> float:
        """Another sync iteration beside the first, as long as there is a crowd."""
        if not self._is_crowded or await self._look(beside=True) > 0:
            self._is_crowded = False
            return self._policy.rest_max.total_seconds()
        return 0.0

    async def relist(self) -> float:
        """See to it that every lane with rows before a gate is listed; the rest until the next time."""
        every_s = max(RELIST_EVERY.total_seconds(), self._relist_s / RELIST_SHARE)
        if self._gates_hold:
            began = self._clock.monotonic()
            relisting = self._do.relist_lanes(every=timedelta(seconds=every_s), look_again=self._policy.look_again)
            listed = await self._tools.store.run(relisting)
            if listed is not None:
                self._relist_s = self._clock.monotonic() - began
            if listed:
                self._found_lanes()
        return every_s

    async def _look(self, *, beside: bool = False) -> float:
        told, room = self._only_told(), self._runner.room
        only_events = room <= 0
        if told is not None and not only_events:
            now = self._runner.database_time.latest(self._clock.monotonic())
            if now is not None:
                return await self._look_where_told(told, now)
        gated_room = self.gated_room
        self.is_short_of_room = only_events or gated_room <= 0 or self._runner.suspect_room <= 0
        if only_events and not (self._is_told_of_events and self.event_room > 0):
            return self._policy.rest_max.total_seconds()
        sync_guid, turn = self._chance.guid(), next(self._turns)
        asked_at = self._clock.monotonic()
        # Waited for also by a worker that stops: thrown away, the answer would be a shard that nobody lets go.
        with anyio.CancelScope(shield=True):
            acquired = await self._tools.store.run(
                self._do.acquire_shard(
                    sync_guid=sync_guid,
                    holder=self._name,
                    lease=self._policy.shard_lease,
                    lanes=self._special_lanes(),
                    gated_handlers=self._handlers.names if gated_room > 0 and not only_events else (),
                    ahead=self.lead + self.ahead / 2,
                    turn=turn,
                    only_events=only_events,
                )
            )
        self._found_nothing = acquired.shard is None and not only_events
        self._runner.database_time.learn(asked_at, self._clock.monotonic(), acquired.now)
        self._gates_hold = acquired.holds
        if acquired.shard is None:
            self._fruitless = 0
            if not (only_events or beside or acquired.contended):
                self.restraint.found_nothing()
            return self._policy.rest_max.total_seconds() if only_events else self._rest(acquired)
        self._overdue = 0
        sync = Iteration(self, self._tools, acquired, acquired.shard, sync_guid, asked_at, only_events=only_events)
        with self._holding():
            await sync.run()
        if sync.moved or sync.claimed or sync.settled:
            self._fruitless = 0
            self.restraint.lift()
            if sync.moved + sync.settled >= BESIDE_FROM and not self._is_crowded:
                self._is_crowded = True
                self.beside_wakeup.set()
            return 0.0
        if sync.contended:
            # Elsewhere there may be other work, and perhaps just what this waits for: rows on the way to their gates.
            # If not, rest as long as others are likely to take: to look sooner would only slow them down.
            rest_s = max(CONTENDED_REST_S, 2 * self._gated_claim_s) * self._chance.random()
            return 0.0 if turn is Turn.IMPORTANT else rest_s
        # Work was there but could not be had, perhaps because another statement held it: never ask in a tight loop.
        self._fruitless += 1
        return backoff_s(self._fruitless, first=0.005, most=self._policy.rest_max.total_seconds(), spread=0)

    async def _look_where_told(self, shard: int, now: datetime) -> float:
        """One sync iteration over the shard in which there is something new: it is taken by the move itself. Whatever
        else there may be, there or elsewhere, is for the next look, which is due at once."""
        self._found_nothing = False
        asked_at, unknown = self._clock.monotonic(), Acquired(now=now, shard=shard)
        sync = Iteration(self, self._tools, unknown, shard, self._chance.guid(), asked_at, only_events=False)
        within = min(TAKEN_WITHIN_MAX, self._policy.attempt_lease * TAKEN_WITHIN_LEASE)
        if await sync.take(Taking(self._name, now + within)):
            self.restraint.lift()
            with self._holding():
                await sync.run()
        return 0.0

    @contextmanager
    def _holding(self) -> Iterator[None]:
        self.shards_held += 1
        try:
            yield
        finally:
            self.shards_held -= 1

    @property
    def lead(self) -> timedelta:
        """How long the answer to a gated claim takes: a slot that begins sooner would be void when it is known."""
        return min(timedelta(seconds=self._gated_claim_s), LEAD_MAX, self._policy.attempt_lease / 12)

    @property
    def ahead(self) -> timedelta:
        """How far ahead slots are taken: where the database is far away, as far as its answers need to keep up."""
        wanted = max(self._policy.slots_ahead, self.lead * LEADS_AHEAD)
        return min(wanted, self._policy.attempt_lease / 3 - self.lead)  # what is claimed must start within that time

    @property
    def event_room(self) -> int:
        """How many events may be claimed: in line they pass others, which were claimed because they will start soon."""
        return self._runner.room + self._runner.line.passed_by_events

    @property
    def gated_room(self) -> int:
        """How many attempts may be claimed before gates: their slots begin soon, and may be used a little late."""
        within = self.lead + self.ahead + timedelta(microseconds=SPREAD_NS / 1000)
        return min(self._runner.gated_room(within.total_seconds()), self._policy.batch_max)

    def learn_lead(self, took_s: float) -> None:
        """Up at once, down slowly: what took long may do so again."""
        self._gated_claim_s = max(took_s, self._gated_claim_s * 0.9)

    @property
    def _is_told_of_events(self) -> bool:
        return any(semaphore_of(name) is not None for name in self._handlers.names)

    def _special_lanes(self) -> list[str]:
        """Lanes beside the ungated one that this worker may read now."""
        names = self._handlers.names
        parked = [parked_lane(name) for name in names]
        return parked + [suspect_lane(name) for name in names] if self._runner.suspect_room > 0 else parked

    def _rest(self, acquired: Acquired) -> float:
        longest = self._policy.rest_max.total_seconds()
        if acquired.next_due_at is None:
            return longest
        # Asked then, and not so long after this answer: it was on its way for a while since the database told the time.
        until_due = self._runner.database_time.perhaps_reached(acquired.next_due_at) - self._clock.monotonic()
        if until_due > 0:
            self._overdue = 0
            return min(longest, until_due + WAKE_JITTER_S * self._chance.random())
        # It came due while the answer was on its way; or others have it, and are to be let alone for a while.
        self._overdue += 1
        if self._overdue == 1:
            return 0.0
        return backoff_s(self._overdue - 1, first=CONTENDED_REST_S, most=longest, spread=0)
