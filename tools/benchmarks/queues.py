"""Workloads of typed queues: how fast tasks are put, and how fast they are handled in batches and gone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
import asyncpg

from benchmarks.checking import Tally
from benchmarks.measuring import Measured, Run, rate, run_loop
from benchmarks.parts import PATIENCE_S, failures_told
from matrixsched.app import App
from matrixsched.events import BatchEnded
from matrixsched.queues import Contract, Field, FieldType, QueueContract, task_class
from matrixsched.store.statements import render
from matrixsched.worker import Worker, WorkerPolicy

BATCH = 500
PROCESSORS = 3
"""While one batch is handled, others are taken and settled."""
LOOPS = 2
QUEUE = 1
CONTRACT = Contract(
    version=1,
    description="",
    queues=(QueueContract(id=QUEUE, name="numbers", fields=(Field(name="number", type=FieldType.INT),)),),
)
Number: Any = task_class(CONTRACT.queue("numbers"))

# What taking and finishing a batch costs without receipts, attempts or anything else.
CLAIM = """
update matrixsched.queue_tasks t set due_at = statement_timestamp() + interval '1 minute', receipt = $1
 where t.id = any (array(select id from matrixsched.queue_tasks
                          where queue = 1 and due_at <= statement_timestamp()
                          order by due_at, id limit 500 for update skip locked))
returning t.id, t.data
"""
FINISH = "delete from matrixsched.queue_tasks where id = any ($1::bigint[])"
LEFT = "select count(*) from matrixsched.queue_tasks"
WAITING = """
insert into matrixsched.queue_tasks (queue, data, attempts, created_at, start_at, due_at)
select 1, {data}, 0, {at}, {at}, {at} from generate_series(1, {count})
"""


def queue_put(run: Run) -> Measured:
    """tasks per second of one caller that puts them in batches of 1,000"""
    count = run.scale.tasks

    async def work() -> float:
        async with _installed(run) as app:
            begun = time.perf_counter()
            await app.queues.put_many(Number(number=number) for number in range(count))
            return time.perf_counter() - begun

    elapsed_s = run_loop(work)
    return Measured([rate("rate", count, elapsed_s)], _left(run, count))


def queue_drain(run: Run) -> Measured:
    """tasks per second of a typed queue, in batches of 500, no-op handler, one process: until they are gone"""
    return _drained(run, future=0)


def queue_future(run: Run) -> Measured:
    """as queue-drain, with a million tasks present that are not due yet"""
    return _drained(run, future=run.scale.future)


def _drained(run: Run, *, future: int) -> Measured:
    tally = Tally(run.scale.tasks)

    async def prepare() -> None:
        async with _installed(run) as app:
            await app.queues.put_many(Number(number=number) for number in range(tally.expected))

    run_loop(prepare)
    if future:
        run.place.ask(WAITING.format(data="'\\x9100'::bytea", at="now() + interval '1 day'", count=future))
    run.place.settle()
    elapsed_s = run_loop(lambda: _drain(run, tally))
    return Measured([rate("rate", tally.expected, elapsed_s)], tally.violations + _left(run, future))


async def _drain(run: Run, tally: Tally) -> float:
    app = _app(run)
    gone, all_gone = 0, anyio.Event()

    def count_gone(event: BatchEnded) -> None:
        nonlocal gone
        gone += event.processed
        if gone >= tally.expected:
            all_gone.set()

    @app.queues.handler("numbers", batch_size=BATCH)
    async def count(tasks: Sequence[Any]) -> None:
        for task in tasks:
            tally.count(task.number)

    app.events.subscribe(BatchEnded, count_gone)
    async with failures_told(app, tally):
        begun = time.perf_counter()
        async with Worker(app, WorkerPolicy(processors=PROCESSORS), only_queues=True):
            with anyio.fail_after(PATIENCE_S):
                await all_gone.wait()
            return time.perf_counter() - begun


def queue_floor(run: Run) -> Measured:
    """the same tasks claimed by UPDATE and finished by DELETE on raw asyncpg, in batches of 500, without the library"""
    count = run.scale.tasks

    async def prepare() -> None:
        async with _installed(run) as app:
            await app.queues.put_many(Number(number=number) for number in range(count))

    async def drain() -> float:
        claim, finish = (render("postgresql", run.place.installation, text) for text in (CLAIM, FINISH))
        async with asyncpg.create_pool(run.place.url, min_size=LOOPS, max_size=LOOPS) as pool:

            async def loop() -> None:
                async with pool.acquire() as connection:
                    while rows := await connection.fetch(claim, uuid4()):
                        await connection.execute(finish, [row["id"] for row in rows])

            begun = time.perf_counter()
            async with anyio.create_task_group() as group:
                for _ in range(LOOPS):
                    group.start_soon(loop)
            return time.perf_counter() - begun

    run_loop(prepare)
    run.place.settle()
    elapsed_s = run_loop(drain)
    return Measured([rate("rate", count, elapsed_s)], _left(run, 0))


def _app(run: Run) -> App:
    app = run.place.app()
    app.queues.use(CONTRACT)
    return app


@asynccontextmanager
async def _installed(run: Run) -> AsyncIterator[App]:
    """An application in an installation that was created just now."""
    app = _app(run)
    await app.init(shards=run.shards)
    async with app:
        yield app


def _left(run: Run, expected: int) -> list[str]:
    ((left,),) = run.place.ask(LEFT)
    return [] if left == expected else [f"{left} tasks are there, not {expected}"]
