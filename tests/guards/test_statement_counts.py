"""How many statements everything takes: a bound that a faster machine does not hide and a slower one does not break.

On PostgreSQL each round trip is counted where it leaves the driver, on SQLite each transaction. The bounds are in
`support/costs.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from support.by_hand import SteppedWorker, drain
from support.callers import async_caller
from support.costs import Costs, costs_of
from support.counting import Sent, counted_app
from support.elsewhere import schedule_elsewhere

from matrixsched import App, call
from matrixsched.calls import Call
from matrixsched.clock import ManualClock
from matrixsched.events import OutcomesRecorded
from matrixsched.rules.names import shard_of
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

ACTIONS = 1_000
WARM_UP = 400
LATER = timedelta(days=1)
DEADLINE_S = 10


@dataclass(frozen=True)
class Workshop:
    app: App
    sent: Sent
    clock: ManualClock
    worker: Worker

    @property
    def costs(self) -> Costs:
        return costs_of(self.app)

    async def put(self, count: int, prefix: str = "due", **terms: Any) -> None:
        await self.app.schedule_many(a_call(f"{prefix}-{number}", **terms) for number in range(count))

    async def drain(self) -> int:
        return await drain(self.worker, self.clock)


def a_call(id: str, **terms: Any) -> Call:
    return call("work", id=id, **terms)


@asynccontextmanager
async def workshop(url: str, *, shards: int = 4) -> AsyncIterator[Workshop]:
    """An application whose worker has seen work before: sessions are open, and it knows how fast its handlers are."""
    clock = ManualClock()
    async with counted_app(url, clock, shards=shards) as (app, sent):

        @app.action("work")
        async def work() -> None: ...

        made = Workshop(app, sent, clock, Worker(app))
        await made.put(max(WARM_UP, 10 * shards), "warm-up")
        await made.drain()
        yield made


# From the incoming queue to the recorded outcome.


@pytest.mark.parametrize("shards", [1, 4, 64])
async def test_a_thousand_actions_take_four_statements_for_each_shard(database_url: str, shards: int) -> None:
    async with workshop(database_url, shards=shards) as made:
        await made.put(ACTIONS)
        sent = await made.sent.during(made.drain)
    assert sent.total() <= made.costs.thousand_actions[shards], sent


async def nothing_else(made: Workshop) -> None: ...


async def future_ones(made: Workshop) -> None:
    await made.put(5_000, "future", delay=LATER)


async def finished_ones(made: Workshop) -> None:
    await made.put(2_000, "finished")


async def superseded_ones(made: Workshop) -> None:
    """Rows of versions that were replaced after they had been moved wait for their time, and nobody for them."""
    await made.put(2_000, "replaced", delay=LATER)
    await made.drain()
    await made.put(2_000, "replaced", delay=2 * LATER)


@pytest.mark.parametrize("beside", [nothing_else, future_ones, finished_ones, superseded_ones])
async def test_what_is_not_due_costs_no_statement(
    database_url: str, beside: Callable[[Workshop], Awaitable[None]]
) -> None:
    async with workshop(database_url) as made:
        await beside(made)
        await made.drain()
        await made.put(ACTIONS)
        sent = await made.sent.during(made.drain)
    assert sent == made.costs.batches(4)


async def test_a_lone_action_is_taken_and_claimed_by_the_first_statement_of_whoever_is_told(database_url: str) -> None:
    async with workshop(database_url) as made:
        await schedule_elsewhere(made.app, "lone")
        made.worker.intake.hear(shard_of("lone", 4))
        sent = await made.sent.during(made.drain)
    assert sent == {**made.costs.lone_start, **made.costs.vain_look}


async def test_plans_are_not_made_anew_while_batches_stay_as_large(postgres_dsn: str) -> None:
    async with workshop(postgres_dsn) as made:
        await made.put(ACTIONS)
        await made.drain()
        await made.put(ACTIONS)
        await made.sent.during(made.drain)
    # One for each connection in use, should they have been planned twenty seconds ago: by the real clock, alas.
    assert made.sent.plans_discarded <= 2


# From the call to the written action.


async def test_a_lone_call_is_one_statement(database_url: str) -> None:
    async with workshop(database_url) as made:
        sent = await made.sent.during(lambda: made.app.schedule("work"))
    assert sent == made.costs.call


async def test_calls_at_once_share_their_statements(database_url: str) -> None:
    async with workshop(database_url) as made:

        async def at_once() -> None:
            async with anyio.create_task_group() as callers:
                for _ in range(256):
                    callers.start_soon(made.app.schedule, "work")

        sent = await made.sent.during(at_once)
    most = made.costs.calls(2, shards=4)
    assert sent.keys() == most.keys()
    assert sent <= most


async def test_calls_in_a_list_go_by_the_thousand(database_url: str) -> None:
    async with workshop(database_url) as made:
        sent = await made.sent.during(lambda: made.put(10_000))
    assert sent == made.costs.calls(10, shards=4)


CHANGES: dict[str, Callable[[App], Awaitable[object]]] = {
    "reschedule": lambda app: app.reschedule("one-0", delay=LATER),
    "run_now": lambda app: app.run_now("one-0"),
    "cancel": lambda app: app.cancel("one-0"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_one_statement(database_url: str, change: str) -> None:
    async with workshop(database_url) as made:
        await made.put(1, "one", delay=LATER)
        sent = await made.sent.during(lambda: CHANGES[change](made.app))
    assert sent == made.costs.changes[change]


async def test_a_look_is_one_statement(database_url: str) -> None:
    async with workshop(database_url) as made:
        await made.put(1, "one", delay=LATER)
        sent = await made.sent.during(lambda: made.app.get("one-0"))
    assert sent.total() == 1, sent


async def test_a_transaction_of_our_own_costs_two_round_trips_more_than_its_statements(postgres_dsn: str) -> None:
    async with workshop(postgres_dsn) as made:
        sent = await made.sent.during(lambda: made.app.limits.remove("global"))
    assert sent.pop("remove_limit") == 1
    assert sorted(text.partition(" ")[0] for text in sent.elements()) == ["begin", "commit"]


async def test_in_a_callers_transaction_calls_take_no_more_statements_than_in_ours(postgres_dsn: str) -> None:
    async with workshop(postgres_dsn) as made, async_caller("asyncpg", postgres_dsn) as caller:
        asked: list[str] = []

        async def in_a_transaction() -> None:
            await caller.begin()
            await made.app.schedule("work", connection=caller.connection)
            calls = (a_call(f"due-{number}") for number in range(3_000))
            await made.app.schedule_many(calls, connection=caller.connection)
            await caller.commit()

        await in_a_transaction()  # the driver asks about types when it meets them
        caller.connection.add_query_logger(lambda record: asked.append(record.query))
        of_our_own = await made.sent.during(in_a_transaction)
        await checkpoint()
    assert not of_our_own
    of_calls = made.costs.callers_calls(1, shards=1) + made.costs.callers_calls(3, shards=4)
    assert len(asked) == 1 + of_calls.total() + 1


# While there is nothing to do.

MINUTES = 5


@pytest.mark.parametrize("shards", [16, 64, 256])
async def test_an_idle_worker_looks_once_in_a_rest_however_many_shards_there_are(
    database_url: str, shards: int
) -> None:
    clock = ManualClock()
    async with counted_app(database_url, clock, shards=shards) as (app, sent):

        @app.action("work")
        async def work() -> None: ...

        worker = SteppedWorker(app)
        await worker.live(clock, timedelta(minutes=1))
        told = await sent.during(lambda: worker.live(clock, timedelta(minutes=MINUTES)))
    looks, turns = (timedelta(minutes=MINUTES) // every for every in (worker.policy.rest_max, worker.policy.tidy_every))
    costs = costs_of(app)
    assert [told.pop(name) for name in costs.vain_look] == [looks] * len(costs.vain_look)
    assert told.total() <= turns * costs.tidying_max, told


async def test_a_worker_that_begins_does_what_is_due_before_all_else(database_url: str) -> None:
    clock = ManualClock()
    async with counted_app(database_url, clock, shards=4) as (app, sent):

        @app.action("work")
        async def work() -> None: ...

        await app.schedule_many(a_call(f"due-{number}") for number in range(ACTIONS))
        recorded, all_recorded = 0, anyio.Event()

        def count(event: OutcomesRecorded) -> None:
            nonlocal recorded
            recorded += event.recorded
            if recorded == ACTIONS:
                all_recorded.set()

        app.events.subscribe(OutcomesRecorded, count)
        worker = Worker(app)

        async def begin() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                with anyio.fail_after(DEADLINE_S):
                    await all_recorded.wait()
                group.cancel_scope.cancel()

        told = await sent.during(begin)
    asked = {name for name in told if " " not in name}  # but for what the driver asks about types
    costs = costs_of(app)
    assert asked <= {*costs.batch, *costs.vain_look, *costs.recording, "claim"}
