"""Mistakes of queues, planted on purpose: each of their checkers sees one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import anyio

from matrixsched.app import App
from matrixsched.errors import OutcomeUnknown
from matrixsched.queues.database import DatabaseStorage
from matrixsched.queues.storage import QueueStorage
from matrixsched.queues.tasks import QueueTask
from matrixsched.store.transition import Conversation, Transaction, Transition
from matrixsched.worker.batches import Batch, Batches
from matrixsched.worker.processors import Processors
from matrixsched.worker.settling import Plan, Settling
from simulation.actors import Client, SimulatedWorker
from simulation.faults import Fault
from simulation.parts import Call, with_part
from simulation.planting import Plant, Planted, all_of, asked_differently, sql, worker
from simulation.queues import Queues
from simulation.world import World


def planted(name: str, plant: Plant, *seen_by: str) -> Planted:
    """A mistake in runs that have queues."""
    return Planted(name, all_of(with_part(Queues), plant), seen_by)


def unseen_by(*checkers: str) -> Plant:
    """Without the checkers that see it first: another one must see it, too."""

    def plant(world: World) -> None:
        for part in world.parts:
            checks = [check for check in part.at_every_commit if check.__name__ not in checkers]
            part.at_every_commit = checks  # type: ignore[misc]

    return plant


def faults(**rates: float) -> Plant:
    def plant(world: World) -> None:
        world.plan.rates = {Fault[name.upper()]: rate for name, rate in rates.items()}

    return plant


def impatient(world: World) -> None:
    """What is not at rest soon after the last fault never will be."""
    world._drain = lambda: anyio.sleep(40)  # type: ignore[method-assign]


class _OftenPurged(Queues):
    @property
    def operations(self) -> Mapping[Call, float]:
        return {self.put_many: 12, self.purge: 12}


class _OftenForbidden(Queues):
    def _wanted(self) -> dict[str, Any]:
        return {"processors_max": 0}


# In the protocol.


def _under_another_guid(world: World, put: Callable[..., Any]) -> Callable[..., Any]:
    """Every time it is sent, it is another request."""

    def blind(items: Any, request_guid: UUID, **options: Any) -> Transition[Any]:
        def begin() -> Conversation[Any]:
            fresh = UUID(int=world.chance.getrandbits(128), version=4)
            return put(items, fresh, **options).begin()  # type: ignore[no-any-return]

        return Transition("put_tasks", begin)

    return blind


def _sometimes_only_said(world: World, put: Callable[..., Any]) -> Callable[..., Any]:
    """Every third put is answered and not written."""
    count = 0

    def careless(items: Any, *arguments: Any, **options: Any) -> Transition[Any]:
        nonlocal count
        count += 1
        return (
            Transition("put_tasks", lambda: _answer([10**6 + count + one for one in range(len(items))]))
            if (count % 3 == 0)
            else put(items, *arguments, **options)
        )

    return careless


def _answer(value: Any) -> Conversation[Any]:
    yield from ()
    return value


def _without_the_tasks(world: World, record: Callable[..., Any]) -> Callable[..., Any]:
    """Deliveries are recorded, as if they were done."""
    transitions = world.database.store._transitions
    return lambda ended, **options: Transaction(
        "record_deliveries", lambda: transitions.record(ended, **options).begin()
    )


def _whatever_is_recorded(world: World, record: Callable[..., Any]) -> Callable[..., Any]:
    """Tasks are put, whatever became of the attempts that deliver them."""
    transitions = world.database.store._transitions

    def eager(ended: Any, **options: Any) -> Transition[Any]:
        def begin() -> Conversation[Any]:
            answers = yield from transitions.record(ended, **options).begin()
            items = [one.delivery for one in ended if one.delivery is not None]
            yield from transitions.put_tasks(items, UUID(int=world.chance.getrandbits(128)), tell=True).begin()
            return answers

        return Transaction("record_deliveries", begin)

    return eager


def _as_if_all_were_good(world: World, retry: Callable[..., Any]) -> Callable[..., Any]:
    def boastful(retries: Any, request_guid: UUID) -> Transition[Any]:
        def begin() -> Conversation[Any]:
            yield from retry(retries, request_guid).begin()
            return {one.receipt.task_id for one in retries}

        return Transition("retry_tasks", begin)

    return boastful


def _without_the_most(world: World, read: Callable[..., Any]) -> Callable[..., Any]:
    def begin() -> Conversation[Any]:
        settings = yield from read().begin()
        return [replace(one, processors_max=None) for one in settings]

    return lambda: Transition("queue_settings", begin)


class _TellsTheLastTry(DatabaseStorage):
    """Whoever hears of the second try only is told that nothing was done."""

    async def _again(self, transition: Transition[Any], unknown: OutcomeUnknown) -> Any:
        return await self._store().run(transition)


class _WithWrongStorage(Queues):
    def _app(self, client: Client) -> App:
        app = super()._app(client)
        make = app.queues._make_storage

        def wrong(*arguments: Any) -> QueueStorage:
            storage: Any = make(*arguments)
            storage.__class__ = _TellsTheLastTry
            return storage  # type: ignore[no-any-return]

        app.queues._make_storage = wrong
        return app


# In the worker.


class _Unprolonged(Batches):
    async def prolong(self, storage: QueueStorage) -> float:
        return 1.0


class NeverProlongs(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.processors.batches.__class__ = _Unprolonged


class _Clinging(Batches):
    def drop(self, batch: Batch) -> None:
        """Keep it."""


class NeverDropsBatches(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.processors.batches.__class__ = _Clinging


class _Forgetful(Settling):
    async def carry_out(self, batch: Batch, plan: Plan, may_wait: Callable[[], bool]) -> None:
        """What is to be retried is left to its timeout."""
        plan.retries.clear()
        await super().carry_out(batch, plan, may_wait)


class _Final(Settling):
    async def carry_out(self, batch: Batch, plan: Plan, may_wait: Callable[[], bool]) -> None:
        """What is to be retried is done."""
        plan.done += [task for task, _ in plan.retries]
        plan.retries.clear()
        await super().carry_out(batch, plan, may_wait)


class ForgetsRetries(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.processors._settling.__class__ = _Forgetful


class NeverRetries(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.processors._settling.__class__ = _Final


class _Doubting(Processors):
    async def _handle(self, batch: Batch, tasks: list[QueueTask], plan: Plan) -> None:
        await super()._handle(batch, tasks, Plan())
        await super()._handle(batch, tasks, plan)


class HandlesTwice(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.processors.__class__ = _Doubting


class _Stubborn(Processors):
    def assign(self, processors: Mapping[int, int]) -> None:
        """Whatever is said, nobody goes anywhere."""
        self._rota.pick = lambda now: None  # type: ignore[method-assign]


class StandsStillWhenTold(SimulatedWorker):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.processors.__class__ = _Stubborn


_PAUSED = "and not exists (select 1 from matrixsched_queue_settings s where s.queue = :queue and s.paused)"
_CHORE = (
    "and exists (select 1 from matrixsched_chores c where c.name = 'queues' and c.held_by = :holder "
    "and c.held_until > :now)"
)
_DUE = "t.due_at <= :now"


def _taking(change: str) -> Plant:
    return all_of(sql("take_tasks.look", _DUE, change), sql("take_tasks.take", _DUE, change))


_SLOW = faults(slow_before=0.3)
"""Receipts are void by the time they are named."""
_DELAY_FORGOTTEN = sql("put_tasks", "0, :now, g.value ->> 1, g.value ->> 1,", "0, :now, :now, :now,")
_NOT_PUT = asked_differently("record_deliveries", _without_the_tasks)

PLANTED = (
    planted("a delay is forgotten", _DELAY_FORGOTTEN, "put_whole"),
    planted("a task is handled before its time", all_of(_DELAY_FORGOTTEN, unseen_by("put_whole")), "handled_early"),
    planted(
        "a put that is sent again is another",
        all_of(asked_differently("put_tasks", _under_another_guid), faults(reply_lost=0.2)),
        "put_once",
    ),
    planted(
        "a put is acknowledged and not written", asked_differently("put_tasks", _sometimes_only_said), "tasks_lost"
    ),
    planted(
        "a second try that is refused hides the first",
        all_of(with_part(_WithWrongStorage), faults(reply_lost=0.25, unavailable=0.25)),
        "tasks_unexpected",
    ),
    planted("a delivery is recorded and not put", _NOT_PUT, "delivered_with_its_record"),
    planted(
        "a delivery is lost",
        all_of(_NOT_PUT, unseen_by("delivered_with_its_record")),
        "delivered_once",
    ),
    planted(
        "a delivery is put by an attempt that lost its row",
        all_of(asked_differently("record_deliveries", _whatever_is_recorded), faults(slow_after=0.2, reply_lost=0.2)),
        "delivered_with_its_record",
        "delivered_once",
    ),
    planted(
        "a dead letter comes back as if it were born now",
        sql("dead_letters.redrive", "d.created_at, :now, :now", ":now, :now, :now"),
        "redriven_as_new",
    ),
    planted(
        "purging takes what is taken",
        all_of(
            with_part(_OftenPurged),
            sql("queue_tasks.waiting", "(t.receipt is null or t.due_at <= :now)", ":now is not null"),
            sql("queue_tasks.purge", "(t.receipt is null or t.due_at <= :now)", ":now is not null"),
        ),
        "nothing_appears_or_goes",
    ),
    planted(
        "a dead letter is without its bytes",
        sql("set_aside_tasks.copy", "g.value ->> 2, t.data", "g.value ->> 2, x''"),
        "dead_letters_are_kept",
    ),
    planted("a task is taken before it is due", _taking("t.due_at <= :now + 2000000"), "taken_when_due"),
    planted(
        "a task is taken while another has it",
        _taking("(t.due_at <= :now or t.receipt is not null)"),
        "taken_alone",
    ),
    planted("a paused queue is handed out", sql("take_tasks.look", _PAUSED), "taken_unless_paused"),
    planted(
        "the newest is taken first",
        sql("take_tasks.take", "order by t.due_at, t.id", "order by t.due_at desc, t.id desc"),
        "taken_longest_ready_first",
    ),
    planted(
        "extending adds to what is left",
        sql("extend_tasks", "max(:now + :visibility,", "max(due_at + :visibility,"),
        "held_as_asked",
    ),
    planted(
        "a task that timed out keeps its start",
        sql("take_tasks.take", "start_at = iif(receipt is null, start_at, due_at)", "start_at = start_at"),
        "counted_as_the_table_says",
    ),
    planted(
        "a return does not move the start before",
        sql("retry_tasks", "previous_start_at = t.start_at", "previous_start_at = coalesce(t.previous_start_at, 1)"),
        "counted_as_the_table_says",
    ),
    planted(
        "a worker is told of one attempt less",
        sql(
            "take_tasks.take",
            "returning id, queue, data, attempts,",
            "returning id, queue, data, attempts / 2 as attempts,",
        ),
        "handed_out_as_stored",
    ),
    planted(
        "a task is done by a receipt that is another's",
        all_of(sql("done_tasks.delete", "and t.receipt = g.value ->> 1"), _SLOW),
        "settled_by_good_receipts",
    ),
    planted(
        "a task is settled after its timeout",
        all_of(
            *(
                sql(name, "t.due_at > :now", ":now is not null")
                for name in ("done_tasks.delete", "retry_tasks", "set_aside_tasks.copy")
            ),
            _SLOW,
        ),
        "settled_by_good_receipts",
    ),
    planted(
        "a void receipt is said to be good",
        all_of(asked_differently("retry_tasks", _as_if_all_were_good), _SLOW),
        "answered_truly",
    ),
    planted(
        "whoever was the manager tells workers what to do",
        all_of(sql("queue_workers.assign", _CHORE, "and :holder is not null"), faults(late=0.3)),
        "told_by_the_manager",
    ),
    planted(
        "a plan knows nothing of the most",
        all_of(with_part(_OftenForbidden), asked_differently("queue_settings", _without_the_most), impatient),
        "planned_within_the_most",
    ),
    planted("a batch is handled twice", worker(HandlesTwice), "handled_once"),
    planted("batches are not prolonged", worker(NeverProlongs), "unsettled_by_a_fault"),
    planted("what is to be retried is forgotten", worker(ForgetsRetries), "unsettled_by_a_fault"),
    planted("what is to be retried is done", worker(NeverRetries), "settled_as_said"),
    planted("a batch that ended is held on to", all_of(worker(NeverDropsBatches), impatient), "quiet"),
    planted(
        "processors that are told where to go stand still", all_of(worker(StandsStillWhenTold), impatient), "quiet"
    ),
    planted(
        "pausing a queue does nothing",
        all_of(
            sql("queue_settings.pause", "values (:queue, 1,", "values (:queue, 0,"),
            sql("queue_settings.pause", "set paused = 1", "set paused = 0"),
        ),
        "set_as_asked",
    ),
    planted(
        "whatever is said of processors is not kept",
        sql("queue_settings.write", "processors_max = :processors_max", "processors_max = null"),
        "set_as_asked",
    ),
)
