"""Mistakes that were made in such systems, planted on purpose: a checker that never objects proves nothing.

Most are a change of one condition in the SQL of the run's own store, others a step of the worker done wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from matrixsched.store.store import Store
from matrixsched.store.transition import Conversation, Transition
from matrixsched.worker.leases import Held, Leases
from matrixsched.worker.recorder import Recorder
from matrixsched.worker.runner import Runner
from simulation.actors import SimulatedWorker
from simulation.world import World

Plant = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    plant: Plant
    seen_by: tuple[str, ...]
    """The checkers of which at least one must object."""


# In the SQL.


def sql(statement: str, old: str, new: str = "") -> Plant:
    """Change the text of a statement; LookupError when the text has moved on and the mistake must be planted anew."""

    def plant(world: World) -> None:
        transitions = world.database.store._transitions
        original = transitions._statements[statement]
        text = " ".join(original.text.split())
        if old not in text:
            raise LookupError(f"{statement} does not say {old!r} any more")
        changed = replace(original, text=text.replace(old, new))
        transitions._statements = {**transitions._statements, statement: changed}

    return plant


def all_of(*plants: Plant) -> Plant:
    def plant(world: World) -> None:
        for one in plants:
            one(world)

    return plant


# In the protocol.


def asked_differently(name: str, change: Callable[[World, Callable[..., Any]], Callable[..., Any]]) -> Plant:
    """Let a transition be asked with other arguments than the product gives it."""

    def plant(world: World) -> None:
        transitions: Any = world.database.store._transitions
        setattr(transitions, name, change(world, getattr(transitions, name)))

    return plant


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


# In the worker.


def worker(wrong: type[SimulatedWorker]) -> Plant:
    def plant(world: World) -> None:
        world.worker_type = wrong

    return plant


def often_restarted(world: World) -> None:
    world.plan.restarts_every_s = 5


def often_stopped(world: World) -> None:
    world.plan.stops_every_s = 5


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


_FENCE = "and l.last_lock_guid = :sync_guid and l.locked"
_NO_FENCE = "and :sync_guid is not null"

PLANTED = (
    Planted(
        "a row is claimed before it is due",
        sql("claim.judge", "p.scheduled_at <= :now", "p.scheduled_at <= :now + 2000000"),
        ("claimed_when_due", "early"),
    ),
    Planted(
        "a handler is called although its row was not rescheduled",
        asked_differently("claim", _without_lease),
        ("leased",),
    ),
    Planted(
        "a dead row is claimed",
        sql("claim.judge", "and a.action_guid = d.action_guid"),
        ("claimed_as_it_stands", "superseded"),
    ),
    Planted(
        "claim and move without a fence",
        all_of(*(sql(name, _FENCE, _NO_FENCE) for name in ("claim.probe", "claim.judge", "move.probe", "move.judge"))),
        ("fenced",),
    ),
    Planted(
        "a new version runs beside the old one",
        all_of(
            sql("claim.judge", "when d.blocked_until is not null then 'blocked'"),
            sql("move.judge", "when t.blocked_until is not null then 'blocked'"),
        ),
        ("claimed_alone", "overlapping"),
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
        all_of(worker(LeavesTooSoon), often_restarted),
        ("abandoned", "doubled"),
    ),
    Planted(
        "a worker keeps what it has lost",
        all_of(worker(NeverLetsGo), often_stopped),
        ("liveness", "quiet", "abandoned"),
    ),
    Planted("outcomes are mislaid", worker(MislaysOutcomes), ("abandoned", "doubled")),
)
