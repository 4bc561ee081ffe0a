"""Mistakes of semaphores, planted on purpose: each of their checkers sees one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from matrixsched.handlers import Handler
from matrixsched.rules.action import EVENT
from matrixsched.rules.outcome import Cancel
from matrixsched.rules.retry import Retry
from matrixsched.rules.semaphore import ACQUIRED_PREFIX
from simulation.actors import SimulatedWorker
from simulation.faults import Fault
from simulation.parts import with_part
from simulation.planting import Plant, Planted, all_of, asked_differently, sql, worker
from simulation.semaphores import Semaphores
from simulation.world import World


def planted(name: str, plant: Plant, *seen_by: str) -> Planted:
    """A mistake in runs that have semaphores."""
    return Planted(name, all_of(with_part(Semaphores), plant), seen_by)


def unseen_by(checker: str) -> Plant:
    """Without the checker that sees it first: another one must see it, too."""

    def plant(world: World) -> None:
        for part in world.parts:
            checks = [check for check in part.at_every_commit if check.__name__ != checker]
            part.at_every_commit = checks  # type: ignore[misc]

    return plant


def several(world: World) -> None:
    """Three semaphores, whose tasks have the same ids."""
    for part in world.parts:
        if isinstance(part, Semaphores):
            part.keys = ["pool-0", "pool-1", "pool-2"]


def often_unheard(world: World) -> None:
    """Replies are lost, and requests sent again."""
    world.plan.rates = {Fault.REPLY_LOST: 0.25}


# In the protocol.


def _without_the_last_event(world: World, schedule: Callable[..., Any]) -> Callable[..., Any]:
    def forgetful(batch: Any, *arguments: Any, **options: Any) -> Any:
        return schedule([one for one in batch if one is not batch[-1] or one.lane != EVENT], *arguments, **options)

    return forgetful


def _as_read_before(world: World, held_tasks: Callable[..., Any]) -> Callable[..., Any]:
    """As if two balances went on at once: each decides by what it read before the other one wrote."""
    read: dict[str, Any] = {}

    def stale(key: str, **options: Any) -> Any:
        transition = held_tasks(key, **options)

        def begin() -> Any:
            answer = yield from transition.begin()
            known, read[key] = read.get(key, answer), answer
            return known

        return replace(transition, begin=begin)

    return stale


# In the worker.


class _Changed(SimulatedWorker):
    """A worker whose event handlers were registered wrongly."""

    def __init__(self, app: Any, *arguments: Any, **options: Any) -> None:
        for name, handler in app.handlers._by_name.items():
            if handler.guard is not None:
                app.handlers._by_name[name] = self.changed(handler)
        super().__init__(app, *arguments, **options)

    @staticmethod
    def changed(handler: Handler[..., Any]) -> Handler[..., Any]:
        raise NotImplementedError


class TellsWhatIsOver(_Changed):
    @staticmethod
    def changed(handler: Handler[..., Any]) -> Handler[..., Any]:
        return replace(handler, guard=None)


class TellsOnce(_Changed):
    """Of places; whoever is asked is told until it goes, or the run would not come to rest."""

    @staticmethod
    def changed(handler: Handler[..., Any]) -> Handler[..., Any]:
        return replace(handler, retry=Retry(max_attempts=1)) if handler.name.startswith(ACQUIRED_PREFIX) else handler


class HoldsEventsForVoid(_Changed):
    """Every third time, whatever the task does."""

    @staticmethod
    def changed(handler: Handler[..., Any]) -> Handler[..., Any]:
        count = 0

        async def guard(event: Any) -> object:
            nonlocal count
            count += 1
            assert handler.guard is not None
            return await handler.guard(event) if count % 3 else Cancel("as often")

        return replace(handler, guard=guard)


def _settings(active: str = "s.active", try_release: str = "s.try_release") -> Plant:
    """A balance goes by other settings than the semaphore has."""
    return sql("balance.hold", "s.*", f"s.key, {active} as active, {try_release} as try_release, s.hold_for")


PLANTED = (
    planted("a balance gives one place too many", _settings("s.active + 1"), "within_active"),
    planted("two balances go on at once", asked_differently("held_tasks", _as_read_before), "within_active"),
    planted(
        "a balance leaves a place free",
        _settings("max(s.active - 1, 0)", "max(min(s.try_release, s.active - 1), 0)"),
        "no_place_left_free",
    ),
    planted(
        "places go to whoever came first",
        sql("semaphore_tasks.waiting", "t.priority desc, t.enqueued_at", "t.enqueued_at"),
        "best_first",
    ),
    planted("the head is asked, too", _settings(try_release="s.active"), "head_protected"),
    planted("nobody is ever asked", _settings(try_release="0"), "asked_who_must_go"),
    planted(
        "a balance gives places of other semaphores",
        all_of(several, sql("balance.write", "where semaphore = :semaphore and task_id in", "where task_id in")),
        "given_by_a_balance",
    ),
    planted("whoever steps back keeps its guid", sql("step_back", "guid = :guid,"), "given_once"),
    planted("places lapse too early", sql("balance.hold", ":now as now", ":now + 2000000 as now"), "place_kept"),
    planted(
        "a release forgets of which time it is",
        sql("release_tasks.there", "and (g.value ->> 1 is null or t.guid = g.value ->> 1)"),
        "place_kept",
        "task_kept",
    ),
    planted(
        "a release takes tasks of other semaphores",
        all_of(several, sql("release_tasks.delete", "semaphore = :semaphore and", ":semaphore is not null and")),
        "task_kept",
    ),
    planted(
        "whoever is enqueued again goes to the end",
        sql(
            "enqueue_tasks.write",
            "excluded.priority where",
            "excluded.priority, enqueued_at = excluded.enqueued_at where",
        ),
        "turn_kept",
    ),
    planted("places are held for good", sql("balance.write", "then :now + :hold_for", "then null"), "held_as_agreed"),
    planted("an event is forgotten", asked_differently("schedule", _without_the_last_event), "one_event_each"),
    planted(
        "nobody is told to balance",
        sql("semaphores.change", "values (:semaphore, :change_guid)", "select :semaphore, :change_guid where false"),
        "marked",
    ),
    planted(
        "a balance takes the marks of other semaphores",
        all_of(several, sql("balance.seen", "semaphore = :semaphore", ":semaphore is not null"), unseen_by("marked")),
        "best_hold",
    ),
    planted(
        "a request that is sent again enqueues again",
        all_of(
            often_unheard,
            sql("enqueue_tasks.request", "do nothing", "(request_guid) do update set created_at = excluded.created_at"),
        ),
        "carried_out_once",
    ),
    planted(
        "what was carried out is said not to be",
        all_of(often_unheard, sql("carried_out.ask", "request_guid in", "request_guid is null and request_guid in")),
        "answered",
    ),
    planted("an event is told although it is void", worker(TellsWhatIsOver), "told_while_it_counts"),
    planted("an event is told once at most", worker(TellsOnce), "told"),
    planted("an event counts as void that is not", worker(HoldsEventsForVoid), "void_only_if_over"),
    planted(
        "enqueueing again keeps the old priority",
        sql("enqueue_tasks.write", "set priority = excluded.priority", "set priority = t.priority"),
        "enqueued_as_asked",
    ),
    planted(
        "renewing does nothing",
        sql(
            "renew_tasks",
            "set hold_until = :now + (select hold_for from matrixsched_semaphores where key = :semaphore)",
            "set hold_until = hold_until",
        ),
        "renewed_as_asked",
    ),
)
