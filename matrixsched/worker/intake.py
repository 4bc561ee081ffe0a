"""The sync iteration: take a shard that has work, claim what is due, move what is new, let the shard go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import cycle
from uuid import UUID

import anyio
import anyio.lowlevel

from matrixsched.clock import Chance, Clock
from matrixsched.errors import DatabaseError, OutcomeUnknown
from matrixsched.events import Events, ShardSynced, WindowPlanned
from matrixsched.handlers import Handlers
from matrixsched.rules.action import COMING, EVENT, UNGATED, Attempt, parked_lane, suspect_lane
from matrixsched.rules.backoff import backoff_s
from matrixsched.rules.gates import SPREAD_NS, Gate
from matrixsched.rules.semaphore import semaphore_of
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.values import Acquired, Claimed, GatedClaim, Planned, Taking, Turn
from matrixsched.worker.pace import Wakeup
from matrixsched.worker.policy import WorkerPolicy
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

_MAY_OPEN_AT_ANY_MOMENT = frozenset({Gate.BUSY, Gate.UNPLANNED})


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
        self._store = store
        self._do = store.transitions
        self._handlers = handlers
        self._runner = runner
        self._policy = policy
        self._name = name
        self._clock = clock
        self._chance = chance
        self._events = events
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
        """One sync iteration; the rest until there may be work again."""
        rest_s = await self._look()
        self.looked_at = self._clock.monotonic()
        return rest_s

    async def step_beside(self) -> float:
        """Another sync iteration beside the first, as long as there is a crowd."""
        if not self._is_crowded or await self._look() > 0:
            self._is_crowded = False
            return self._policy.rest_max.total_seconds()
        return 0.0

    async def relist(self) -> float:
        """See to it that every lane with rows before a gate is listed; the rest until the next time."""
        every_s = max(RELIST_EVERY.total_seconds(), self._relist_s / RELIST_SHARE)
        if self._gates_hold:
            began = self._clock.monotonic()
            relisting = self._do.relist_lanes(every=timedelta(seconds=every_s), look_again=self._policy.look_again)
            listed = await self._store.run(relisting)
            if listed is not None:
                self._relist_s = self._clock.monotonic() - began
            if listed:
                self._found_lanes()
        return every_s

    async def _look(self) -> float:
        room, gated_room = self._runner.room, self.gated_room
        self.is_short_of_room = room <= 0 or gated_room <= 0 or self._runner.suspect_room <= 0
        only_events = room <= 0
        if only_events and not (self._is_told_of_events and self.event_room > 0):
            return self._policy.rest_max.total_seconds()
        now = self._runner.database_time.latest(self._clock.monotonic())
        if (told := self._only_told()) is not None and now is not None and not only_events:
            return await self._look_where_told(told, now)
        sync_guid, turn = self._chance.guid(), next(self._turns)
        asked_at = self._clock.monotonic()
        # Waited for also by a worker that stops: thrown away, the answer would be a shard that nobody lets go.
        with anyio.CancelScope(shield=True):
            acquired = await self._store.run(
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
        self._found_nothing = acquired.shard is None
        self._runner.database_time.learn(asked_at, self._clock.monotonic(), acquired.now)
        self._gates_hold = acquired.holds
        if acquired.shard is None:
            self._fruitless = 0
            return self._policy.rest_max.total_seconds() if only_events else self._rest(acquired)
        self._overdue = 0
        sync = _Sync(self, acquired, acquired.shard, sync_guid, asked_at, only_events=only_events)
        with self._holding():
            await sync.run()
        if sync.moved or sync.claimed or sync.settled:
            self._fruitless = 0
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
        sync = _Sync(self, unknown, shard, self._chance.guid(), asked_at, only_events=False)
        within = min(TAKEN_WITHIN_MAX, self._policy.attempt_lease * TAKEN_WITHIN_LEASE)
        if await sync.take(Taking(self._name, now + within)):
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


class _Sync:
    """One iteration over one shard, under one guid."""

    def __init__(
        self, intake: Intake, acquired: Acquired, shard: int, sync_guid: UUID, asked_at: float, *, only_events: bool
    ) -> None:
        self._intake = intake
        self._store = intake._store
        self._do = intake._do
        self._runner = intake._runner
        self._policy = intake._policy
        self._clock = intake._clock
        self._handlers = intake._handlers.names
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
        self._intake._events.emit(ShardSynced(self._shard, self._sync_guid, self.moved, self.claimed, held_s, lost))

    def _may_go_on(self) -> bool:
        held_s = self._clock.monotonic() - self._acquired_at
        room = self._intake.event_room if self._only_events else self._runner.room
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
                limit = self._policy.batch_max if self._intake.campaign_begins and lane == UNGATED else room
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
        planned = await self._store.run(self._do.plan_window(self._intake._name))
        if planned is Planned.NOW:
            self.settled += 1
            self._intake._events.emit(WindowPlanned(self._intake._name, self._clock.monotonic() - began))
        return planned

    async def _claim_gated(self) -> GatedClaim | None:
        """None when there is no room."""
        room = self._intake.gated_room
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
                        ahead=self._intake.ahead,
                        lead=self._intake.lead,
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
                self._intake.learn_lead(answered_at - self._runner.database_time.perhaps_reached(passed.now))
        self._hand_over(passed.attempts, asked_at)
        return passed

    def _limit(self, lane: str) -> int:
        room = self._intake.event_room if lane in self._event_lanes else self._runner.room
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
            self._intake.campaign_begins = bool(claimed.gated_lanes)
        return claimed.seen

    async def _move(self, *, only_events: bool = False, taking: Taking | None = None) -> Claimed:
        room = min(self._intake.event_room if only_events else self._runner.room, self._policy.batch_max)
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
            self._intake.campaign_begins = bool(moved.gated_lanes)
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

    async def _found(self, asked_at: float, lanes: Sequence[str]) -> list[Attempt]:
        """The answer to a claim was lost: what of it we hold, or it counts as interrupted without ever having run.

        Looked for also if it was waited for in vain for as long as a worker waits, which is a third of a lease. It may
        still be under way then, so the fence is closed first: what is not found is not claimed later, either.
        """
        failures = 0
        fresh_guid = self._intake._chance.guid()
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
