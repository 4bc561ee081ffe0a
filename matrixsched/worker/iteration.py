"""One sync iteration over one shard: claim what is due, move what is new, pass gates, let it go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import anyio
import anyio.lowlevel

from matrixsched.clock import Chance, Clock
from matrixsched.errors import DatabaseError, OutcomeUnknown
from matrixsched.events import Events, InterruptionsFound, ShardSynced, WindowPlanned
from matrixsched.handlers import Handlers
from matrixsched.rules.action import COMING, EVENT, UNGATED, Attempt, parked_lane, suspect_lane
from matrixsched.rules.backoff import backoff_s
from matrixsched.rules.gates import Gate
from matrixsched.rules.semaphore import semaphore_of
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.values import Acquired, Claimed, GatedClaim, Planned, Taking
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.runner import Runner

_MAY_OPEN_AT_ANY_MOMENT = frozenset({Gate.BUSY, Gate.UNPLANNED})


@dataclass(frozen=True, slots=True)
class Tools:
    """What iterations work with."""

    store: Store
    handlers: Handlers
    runner: Runner
    policy: WorkerPolicy
    name: str
    clock: Clock
    chance: Chance
    events: Events


class Pacing(Protocol):
    """What one iteration leaves to the next, and how much it may claim; kept by the intake."""

    campaign_begins: bool

    @property
    def lead(self) -> timedelta: ...

    @property
    def ahead(self) -> timedelta: ...

    @property
    def event_room(self) -> int: ...

    @property
    def gated_room(self) -> int: ...

    def learn_lead(self, took_s: float) -> None: ...


class Iteration:
    """One iteration over one shard, under one guid."""

    def __init__(
        self,
        pace: Pacing,
        tools: Tools,
        acquired: Acquired,
        shard: int,
        sync_guid: UUID,
        asked_at: float,
        *,
        only_events: bool,
    ) -> None:
        self._pace = pace
        self._tools = tools
        self._store = tools.store
        self._do = tools.store.transitions
        self._runner = tools.runner
        self._policy = tools.policy
        self._clock = tools.clock
        self._handlers = tools.handlers.names
        self._event_lanes = [lane for lane in acquired.lanes if _is_of_events(lane)]
        self._lanes = [lane for lane in acquired.lanes if lane not in self._event_lanes]
        self._listed = acquired.gated_lanes
        self._filled: dict[str, None] = {}
        """Gated lanes that rows were put into just now."""
        self._incoming = acquired.incoming
        self._incoming_events = acquired.incoming_events
        self._only_events = only_events
        """There is room for nothing else."""
        self._shard = shard
        self._sync_guid = sync_guid
        self._acquired_at = self._beaten_at = asked_at
        self._handed_over: list[Attempt] = []
        self._is_let_go = False
        self._parked = False
        self.moved = self.claimed = self.settled = 0
        self.contended = False
        """Another worker passed the gates that we looked at."""

    async def take(self, taking: Taking) -> bool:
        """Take the shard with the first move, if nobody has it; whether it is ours."""
        try:
            moved = await self._move(taking=taking)
        except BaseException as error:
            was_refused = isinstance(error, DatabaseError) and not isinstance(error, OutcomeUnknown)
            if not was_refused:
                await self._leave()  # perhaps it was taken
            raise
        self.moved = moved.seen
        self._incoming = moved.seen >= self._policy.batch_max
        return moved.took_shard

    async def run(self) -> None:
        lost = False
        try:
            while await self._pass() and self._may_go_on():
                if not await self._beat_if_due():
                    lost = True
                    break
        finally:
            await self._leave(lost=lost)

    async def _leave(self, *, lost: bool = False) -> None:
        """Let the shard go, unless it is gone already, and tell what was done."""
        if not lost and not self._is_let_go:
            lost = not await self._release()
        held_s = self._clock.monotonic() - self._acquired_at
        self._tools.events.emit(ShardSynced(self._shard, self._sync_guid, self.moved, self.claimed, held_s, lost))

    def _may_go_on(self) -> bool:
        held_s = self._clock.monotonic() - self._acquired_at
        room = self._pace.event_room if self._only_events else self._runner.room
        return held_s < self._policy.hold_max.total_seconds() and room > 0

    async def _pass(self) -> bool:
        """Claim from each lane, move, pass gates; whether there may be more. Overdue rows go first, or they starve; but
        events before everything, also those that are new."""
        more_events = await self._pass_events()
        if more_events or self._only_events:
            return more_events  # nothing else gets room that the rest of them may need
        more = False
        for lane in self._lanes:
            if lane == COMING:  # one batch while the shard is held: others have rows that need not wait
                self.settled += await self._claim(lane, self._policy.batch_max, 0)
                continue
            room = self._limit(lane)
            if room > 0:
                limit = self._policy.batch_max if self._pace.campaign_begins and lane == UNGATED else room
                seen = await self._claim(lane, limit, room)
                self.settled += seen
                more |= seen >= limit
        if self._incoming:
            seen = (await self._move()).seen
            self.moved += seen
            self._incoming = seen >= self._policy.batch_max
            more |= self._incoming
        if self._listed or self._filled:
            await self._pass_gates()
        return more

    async def _pass_events(self) -> bool:
        """Claim those that waited, then those that are new if others are due that would go before them; whether there
        may be more."""
        for lane in self._event_lanes:
            if (room := self._limit(lane)) > 0:
                seen = await self._claim(lane, room, room)
                self.settled += seen
                if seen >= room:
                    return True
        if self._incoming_events and (self._lanes or self._only_events):
            seen = (await self._move(only_events=True)).seen
            self.moved += seen
            self._incoming_events = seen >= self._policy.batch_max
            return self._incoming_events
        return False

    async def _pass_gates(self) -> None:
        """Claim what may pass its gates. If a window of the quota has begun that nobody has planned, plan it first."""
        passed = await self._claim_gated()
        if passed is not None and passed.unplanned and await self._plan_window() is not Planned.BUSY:
            passed = await self._claim_gated()
        if passed is not None:
            self.settled += sum(held.gate not in _MAY_OPEN_AT_ANY_MOMENT for held in passed.held.values())
            self.contended = any(held.gate in _MAY_OPEN_AT_ANY_MOMENT for held in passed.held.values())

    async def _plan_window(self) -> Planned:
        began = self._clock.monotonic()
        planned = await self._store.run(self._do.plan_window(self._tools.name))
        if planned is Planned.NOW:
            self.settled += 1
            self._tools.events.emit(WindowPlanned(self._tools.name, self._clock.monotonic() - began))
        return planned

    async def _claim_gated(self) -> GatedClaim | None:
        """None when there is no room."""
        room = self._pace.gated_room
        if room <= 0:
            return None
        asked_at = self._clock.monotonic()
        filled = list(self._filled)
        with anyio.CancelScope(shield=True), self._runner.expecting(room):
            try:
                passed = await self._store.run(
                    self._do.claim_gated(
                        self._shard,
                        self._sync_guid,
                        listed=self._listed,
                        filled=filled,
                        room=room,
                        suspect_room=self._runner.suspect_room,
                        attempt_lease=self._policy.attempt_lease,
                        ahead=self._pace.ahead,
                        lead=self._pace.lead,
                        look_again=self._policy.look_again,
                    )
                )
            except OutcomeUnknown:
                # Their slots will be void before anybody knows of them.
                self._runner.decline(await self._found(asked_at, [*filled, *self._listed]), asked_at)
                raise
        self._filled.clear()
        answered_at = self._clock.monotonic()
        if passed.now is not None:
            self._runner.database_time.learn(asked_at, answered_at, passed.now)
            if passed.attempts:  # who finds others before the gates has an answer much sooner
                self._pace.learn_lead(answered_at - self._runner.database_time.perhaps_reached(passed.now))
        self._hand_over(passed.attempts, asked_at)
        return passed

    def _limit(self, lane: str) -> int:
        room = self._pace.event_room if lane in self._event_lanes else self._runner.room
        limit = min(room, self._policy.batch_max)
        return min(limit, self._runner.suspect_room) if lane.startswith(suspect_lane("")) else limit

    async def _claim(self, lane: str, limit: int, room: int) -> int:
        claimed = await self._taken(
            self._do.claim(
                self._shard,
                self._sync_guid,
                lane=lane,
                handlers=self._handlers,
                limit=limit,
                claim_limit=room,
                attempt_lease=self._policy.attempt_lease,
            ),
            room,
        )
        if lane not in self._event_lanes:  # where no campaign ever is
            self._pace.campaign_begins = bool(claimed.gated_lanes)
        return claimed.seen

    async def _move(self, *, only_events: bool = False, taking: Taking | None = None) -> Claimed:
        room = min(self._pace.event_room if only_events else self._runner.room, self._policy.batch_max)
        moved = await self._taken(
            self._do.move(
                self._shard,
                self._sync_guid,
                handlers=self._handlers,
                move_limit=self._policy.batch_max,
                claim_limit=room,
                attempt_lease=self._policy.attempt_lease,
                only_events=only_events,
                taking=taking,
            ),
            room,
            taking,
        )
        if not only_events:  # where no campaign ever is
            self._pace.campaign_begins = bool(moved.gated_lanes)
        return moved

    async def _taken(self, transition: Transition[Claimed], room: int, taking: Taking | None = None) -> Claimed:
        """Carry it out and hand the claimed attempts, for which there is room, to the runner."""
        asked_at = self._clock.monotonic()
        # A worker that stops waits for the answer, and gives back what it was: thrown away, it would lie for a lease.
        with anyio.CancelScope(shield=True), self._runner.expecting(room):
            try:
                claimed = await self._store.run(transition)
            except OutcomeUnknown:
                if taking is not None:
                    await self._wait_until_certain(taking)
                found = await self._found(asked_at, [*self._event_lanes, *self._lanes, UNGATED, EVENT])
                if self._clock.monotonic() < asked_at + self._policy.attempt_lease.total_seconds() / 3:
                    self._hand_over(found, asked_at)
                else:
                    self._runner.decline(found, asked_at)  # as whatever could not be started soon
                raise
        self._hand_over(claimed.attempts, asked_at)
        if claimed.attempts:
            await anyio.lowlevel.checkpoint()  # let handlers begin before the next statement is written
        self._filled |= dict.fromkeys(claimed.gated_lanes)
        self._parked |= claimed.parked
        return claimed

    async def _wait_until_certain(self, taking: Taking) -> None:
        """The fence, which is closed next, stops what has begun; a request that is still on its way may begin until
        then."""
        certain_at = self._runner.database_time.surely_reached(taking.not_after)
        await self._clock.sleep(max(0.0, certain_at - self._clock.monotonic()))

    def _hand_over(self, attempts: Sequence[Attempt], asked_at: float) -> None:
        self._handed_over.extend(attempts)
        self.claimed += self._runner.accept(attempts, asked_at)
        if interrupted := [attempt.handler for attempt in attempts if attempt.interruptions]:
            self._tools.events.emit(InterruptionsFound(Counter(interrupted)))

    async def _found(self, asked_at: float, lanes: Sequence[str]) -> list[Attempt]:
        """The answer to a claim was lost: what of it we hold, or it counts as interrupted without ever having run.

        Looked for also if it was waited for in vain for as long as a worker waits, which is a third of a lease. It may
        still be under way then, so the fence is closed first: what is not found is not claimed later, either.
        """
        failures = 0
        fresh_guid = self._tools.chance.guid()
        while self._clock.monotonic() < asked_at + self._policy.attempt_lease.total_seconds() * 2 / 3:
            try:
                if await self._store.run(self._do.close_fence(self._shard, self._sync_guid, fresh_guid)):
                    self._is_let_go = True
                attempts = await self._store.run(
                    self._do.claimed_by(
                        self._shard, self._sync_guid, lanes=lanes, attempt_lease=self._policy.attempt_lease
                    )
                )
            except DatabaseError:
                failures += 1
                await self._clock.sleep(backoff_s(failures, first=0.05, most=0.5, spread=0))
            else:
                # Those of our earlier claims may have been run and recorded since this was read.
                known = {attempt.claim for attempt in self._handed_over}
                return [attempt for attempt in attempts if attempt.claim not in known]
        return []

    async def _beat_if_due(self) -> bool:
        now = self._clock.monotonic()
        if now - self._beaten_at < self._policy.heartbeat.total_seconds():
            return True
        self._beaten_at = now
        return await self._store.run(self._do.beat_shard(self._shard, self._sync_guid))

    async def _release(self) -> bool:
        """Let the shard go; if that cannot be said, it is free when its lease ends. Those are told who know what we do
        not: they heard of it when we did, and found the shard in our hands."""
        # Not for a heartbeat, which may be shorter than an answer takes.
        with anyio.move_on_after(self._policy.shard_lease.total_seconds() / 3, shield=True):
            try:
                return await self._store.run(self._do.release_shard(self._shard, self._sync_guid, tell=self._parked))
            except DatabaseError:
                return False
        return False


def _is_of_events(lane: str) -> bool:
    """Whether only events are in it: that of events, or one in which somebody parked them who does not know them."""
    parked = parked_lane("")
    return lane == EVENT or lane.startswith(parked) and semaphore_of(lane.removeprefix(parked)) is not None
