"""Mistakes that were made in such systems, planted on purpose: a checker that never objects proves nothing.

Most are a change of one condition in the SQL of the run's own store, others a step of the worker done wrongly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import anyio

from matrixsched import answers, scheduler
from matrixsched.errors import DatabaseError
from matrixsched.rules import outcome
from matrixsched.store.sqlite import hygiene
from matrixsched.store.store import Store
from matrixsched.store.transition import Conversation, Transition
from matrixsched.worker.giving_back import GivingBack
from matrixsched.worker.leases import Held, Leases
from matrixsched.worker.pace import Wakeup
from matrixsched.worker.recorder import Recorder
from matrixsched.worker.runner import Runner
from simulation.actors import SimulatedWorker
from simulation.faults import Fault
from simulation.planting import (
    FENCE,
    NO_FENCE,
    Planted,
    all_of,
    always_restarted,
    asked_differently,
    beats_always,
    edited,
    often_restarted,
    often_stopped,
    patient,
    sql,
    worker,
)
from simulation.world import World


def _without_lease(world: World, claim: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: claim(*arguments, **{**options, "attempt_lease": timedelta(0)})


def _with_fresh_request(world: World, schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Every time it is sent, it is another request."""

    def blind(batch: Any, request_guid: UUID, **options: Any) -> Transition[Any]:
        def begin() -> Conversation[Any]:
            fresh = UUID(int=world.chance.getrandbits(128), version=4)
            return schedule(batch, fresh, **options).begin()  # type: ignore[no-any-return]

        return Transition("schedule", begin)

    return blind


def shards_in_turn(world: World) -> None:
    original, turns = scheduler.shard_of, count()
    scheduler.shard_of = lambda action_id, shard_count: next(turns) % shard_count
    world.undo.append(lambda: setattr(scheduler, "shard_of", original))


class _Unprolonged(Leases):
    async def extend(self, store: Store) -> float:
        return 1.0


class NeverExtends(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.leases.__class__ = _Unprolonged


class _Hasty(Recorder):
    @property
    def is_idle(self) -> bool:
        return not self._ended and not self._busy


class LeavesTooSoon(SimulatedWorker):
    """Takes a batch that is on its way for recorded."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recorder.__class__ = _Hasty


class _Clinging(Runner):
    def _forget(self, held: Held) -> None:
        """Keep it."""


class NeverLetsGo(SimulatedWorker):
    """Keeps in its hands what it has lost or given back."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.runner.__class__ = _Clinging


class _Careless(Recorder):
    def put(self, ended: Any) -> None:
        """Every seventh outcome is mislaid."""
        self.count = getattr(self, "count", 0) + 1
        if self.count % 7:
            super().put(ended)
        else:
            self._leases.drop(ended.claim)


class MislaysOutcomes(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recorder.__class__ = _Careless


class StopsLeasesFirst(SimulatedWorker):
    """Stops prolonging leases when it is told to stop, although handlers are under way."""

    @asynccontextmanager
    async def _kept_leases(self) -> AsyncIterator[None]:
        store = self._store.sibling()
        async with anyio.create_task_group() as keeping:

            async def extend() -> float:
                return 1.0 if self.stopping.is_set() else await self.leases.extend(store)

            self._start(keeping, "extend", extend, Wakeup())
            try:
                yield
            finally:
                keeping.cancel_scope.cancel()


class _Discouraged(Recorder):
    def _put_back(self, batch: Any) -> None:
        for ended in batch:
            self._leases.drop(ended.claim)


class DropsOutcomes(SimulatedWorker):
    """Sends nothing again."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.recorder.__class__ = _Discouraged


class _Fearful(Leases):
    async def extend(self, store: Store) -> float:
        try:
            return await super().extend(store)
        except DatabaseError:
            for held in self._held.values():
                held.lost = True
            raise


class LosesLeases(SimulatedWorker):
    """Takes everything for lost that it could not prolong at the first try."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.leases.__class__ = _Fearful


class _Forgetful(GivingBack):
    async def step(self) -> float:
        try:
            return await super().step()
        except DatabaseError:
            for held in self._unstarted:
                self._forget(held)
            self._unstarted.clear()
            raise


class GivesBackOnce(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.runner.giving_back.__class__ = _Forgetful


def often_refused(world: World) -> None:
    world.plan.rates = {Fault.UNAVAILABLE: 0.3}


def often_unanswered(world: World) -> None:
    world.plan.rates[Fault.REPLY_LOST] = 0.2


def often_late(world: World) -> None:
    world.plan.rates[Fault.LATE] = 0.2


def _with_wrong_clock(world: World, schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Whoever schedules reckons by a clock that is five seconds slow."""

    def by_wrong_clock(batch: Any, *arguments: Any, **options: Any) -> Transition[Any]:
        slow = world.clock.now() - timedelta(seconds=5)
        wrong = [new._replace(at=new.at or slow + new.delay, delay=timedelta(0)) for new in batch]
        return schedule(wrong, *arguments, **options)  # type: ignore[no-any-return]

    return by_wrong_clock


def _forgetting(world: World, prune_requests: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **options: prune_requests(**{**options, "keep": timedelta(0)})


PLANTED = (
    Planted(
        "a row is claimed before it is due",
        sql("claim.judge", "p.scheduled_at <= :now", "p.scheduled_at <= :now + 2000000"),
        ("claimed_when_due",),
    ),
    Planted(
        "a handler is called although its row was not rescheduled",
        asked_differently("claim", _without_lease),
        ("leased",),
    ),
    Planted(
        "a dead row is claimed",
        sql("claim.judge", "and a.action_guid = d.action_guid"),
        ("claimed_as_it_stands",),
    ),
    Planted(
        "claim and move without a fence",
        all_of(*(sql(name, FENCE, NO_FENCE) for name in ("claim.probe", "claim.judge", "move.probe"))),
        ("fenced",),
    ),
    Planted(
        "a new version runs beside the old one",
        all_of(
            sql("claim.judge", "when d.blocked_until is not null then 'blocked'"),
            sql("move.judge", "when t.blocked_until is not null then 'blocked'"),
        ),
        ("claimed_alone",),
    ),
    Planted(
        "moving loses what is due later",
        sql("move.judge", "when a.action_guid is null", "when t.scheduled_at > :now or a.action_guid is null"),
        ("one_live_row", "lost"),
    ),
    Planted(
        "an outcome is recorded by an attempt that lost its row",
        all_of(sql("record.judge", "and p.attempt = e.value ->> 3 and p.claimed_by = e.value ->> 4"), often_stopped),
        ("written_by_its_holder",),
    ),
    Planted(
        "an outcome is recorded over another version",
        sql("record.judge", "and a.action_guid = e.value ->> 2"),
        ("counted", "one_live_row", "lost"),
    ),
    Planted(
        "extending revives a row that was recorded",
        all_of(
            sql("extend", "and p.attempt = h.value ->> 3 and p.claimed_by = h.value ->> 4"),
            sql("extend", "set scheduled_at =", "set claimed_by = h.value ->> 4, scheduled_at ="),
        ),
        ("extended_only_if_held",),
    ),
    Planted(
        "a request that is sent again is carried out again",
        sql("schedule.request", "do nothing", "(request_guid) do update set created_at = excluded.created_at"),
        ("one_live_row", "doubled", "lost", "superseded"),
    ),
    Planted(
        "a lost reply is answered with another request",
        asked_differently("schedule", _with_fresh_request),
        ("one_live_row", "doubled", "lost", "superseded"),
    ),
    Planted(
        "pruning takes what is old, finished or not",
        sql("prune_actions.choose", "state = :state and finished_at <", "created_at <"),
        ("nothing_vanishes",),
    ),
    Planted(
        "moving a new version drops the attempt at the old one",
        sql("move.drop", "and claimed_by is null"),
        ("overlapping",),
    ),
    Planted(
        "sweeping takes what is overdue",
        sql("sweep_dead.look", "and a.state = 'live')", "and a.state = 'live' and p.scheduled_at > :now)"),
        ("one_live_row", "lost"),
    ),
    Planted(
        "an attempt under way expires",
        sql(
            "expire_waiting.look",
            "p.expires_at <= :now and (p.claimed_by is null or p.scheduled_at <= :now)",
            "p.expires_at <= :now + 60000000",
        ),
        ("expired_unleased",),
    ),
    Planted(
        "what still has time expires",
        sql("expire_waiting.look", "p.expires_at <= :now", "p.expires_at <= :now + 20000000"),
        ("expired_when_late",),
    ),
    Planted("leases are not prolonged", worker(NeverExtends), ("abandoned", "doubled")),
    Planted(
        "a worker that stops does not wait for its outcomes",
        all_of(worker(LeavesTooSoon), always_restarted),
        ("abandoned", "doubled"),
    ),
    Planted(
        "a worker keeps what it has lost",
        all_of(worker(NeverLetsGo), often_stopped),
        ("liveness", "quiet", "abandoned"),
    ),
    Planted("outcomes are mislaid", worker(MislaysOutcomes), ("abandoned", "doubled")),
    Planted(
        "a lock that is held is taken",
        sql("acquire_shard.choose", "or l.last_heartbeat_at < :now - :lease", "or l.last_heartbeat_at < :now"),
        ("taken_when_free",),
    ),
    Planted(
        "a lock is released by whoever held it before",
        all_of(sql("release_shard", "and last_lock_guid = :sync_guid", "and :sync_guid is not null"), often_stopped),
        ("kept_by_its_holder",),
    ),
    Planted(
        "a lock is prolonged by whoever held it before",
        all_of(
            sql("beat_shard", "and last_lock_guid = :sync_guid", "and :sync_guid is not null"),
            often_stopped,
            beats_always,
        ),
        ("kept_by_its_holder",),
    ),
    Planted(
        "an interruption is not counted",
        sql("claim.judge", "p.interrupted + (p.claimed_by is not null)", "p.interrupted"),
        ("interruptions_counted",),
    ),
    Planted(
        "an interruption is counted twice",
        sql("claim.judge", "+ (p.claimed_by is not null)", "+ 2 * (p.claimed_by is not null)"),
        ("interruptions_counted",),
    ),
    Planted(
        "what is given back counts as interrupted",
        all_of(sql("give_back", "claimed_by = null,"), often_restarted),
        ("abandoned",),
    ),
    Planted(
        "what another attempt holds is given back",
        all_of(sql("give_back", "and p.attempt = h.value ->> 3 and p.claimed_by = h.value ->> 4"), often_stopped),
        ("given_back_by_its_holder", "abandoned", "overlapping"),
    ),
    Planted(
        "an outcome takes away all rows of its action",
        sql("record.remove", "and action_guid = :action_guid", "and :action_guid is not null"),
        ("one_live_row",),
    ),
    Planted(
        "a dead row takes the live one with it",
        sql("claim.drop", "and action_guid = :action_guid", "and :action_guid is not null"),
        ("one_live_row",),
    ),
    Planted(
        "a retry does not wait",
        sql("record.again", "set scheduled_at = :scheduled_at", "set scheduled_at = :now"),
        ("early",),
    ),
    Planted(
        "the next tick is reckoned from the end of the last run",
        edited(outcome, "next_tick", "return next(ticks(repeat, latest), None)", "return latest + repeat.interval"),
        ("targets",),
    ),
    Planted(
        "a handler is started although its lease is over",
        all_of(
            edited(Runner, "_run_next", "started_at >= held.trusted_until", "False"),
            edited(Runner, "_call", "self._check(run, self._clock.monotonic())", "pass"),
            often_stopped,
        ),
        ("started_in_time",),
    ),
    Planted(
        "a handler is called although its guard took as long as its lease",
        all_of(edited(Runner, "_call", "self._check(run, self._clock.monotonic())", "pass"), often_stopped),
        ("started_in_time",),
    ),
    Planted(
        "leases end before handlers do",
        all_of(worker(StopsLeasesFirst), often_restarted, patient),
        ("abandoned", "doubled"),
    ),
    Planted(
        "requests are forgotten at once",
        asked_differently("prune_requests", _forgetting),
        ("one_live_row", "doubled", "lost", "superseded"),
    ),
    Planted(
        "delays are reckoned by the caller's clock",
        asked_differently("schedule", _with_wrong_clock),
        ("early",),
    ),
    Planted(
        "a worker judges by its own clock",
        edited(
            Runner,
            "_database_now",
            "return held.attempt.claimed_at + timedelta(seconds=self._clock.monotonic() - held.asked_at)",
            "return self._clock.now()",
        ),
        ("early", "targets", "expired_when_late", "ended_as_allowed", "abandoned", "overlapping"),
    ),
    Planted(
        "outcomes are dropped when the database is away for a moment",
        worker(DropsOutcomes),
        ("abandoned", "doubled"),
    ),
    Planted(
        "all leases are lost when they could not be prolonged once",
        worker(LosesLeases),
        ("abandoned", "doubled", "overlapping"),
    ),
    Planted(
        "what could not be given back is forgotten",
        all_of(worker(GivesBackOnce), often_restarted, often_refused),
        ("abandoned", "ended_as_allowed"),
    ),
    Planted(
        "a refusal is told although it was done",
        all_of(often_unanswered, edited(answers, "_unwritten", "if proofs[new.id] in carried_out", "if False")),
        ("told_what_was_done",),
    ),
    Planted(
        "a change that was done is told to be refused",
        all_of(often_unanswered, edited(scheduler, "earlier", "if not carried_out", "if True")),
        ("told_what_was_done",),
    ),
    Planted(
        "what was refused is done when its first try arrives",
        all_of(often_late, edited(scheduler, "sent_again", "await store.run(calling_off)", "pass")),
        ("told_what_was_done",),
    ),
    Planted(
        "what was called off passes for done",
        all_of(often_late, edited(hygiene, "took_effect", "and mark_of(guid) not in requests", "")),
        ("told_what_was_done",),
    ),
    Planted(
        "a change is always said to be busy",
        edited(
            scheduler.Scheduler, "change", "return await self._perform(operation, connection)", "raise DatabaseBusy('')"
        ),
        ("failed_for_a_reason",),
    ),
    Planted(
        "an id has another shard each time",
        shards_in_turn,
        ("lost", "superseded", "overlapping", "claimed_as_it_stands"),
    ),
    Planted(
        "pruning knows nothing of how long actions are kept",
        sql("prune_actions.choose", "finished_at < :now - :keep", "finished_at < :now - 0 * :keep"),
        ("pruned_when_old",),
    ),
    Planted(
        "nothing old is found",
        sql("prune_actions.choose", "limit :limit", "limit 0 * :limit"),
        ("tidied_when_done",),
    ),
)
