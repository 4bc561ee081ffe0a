"""How many rows a worker reads on PostgreSQL for what it runs, as the server counts them, whatever else lies there.

The plans of single statements are looked at in store/test_plans.py; this is what comes of them in the store's own
sessions, batch after batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from support.by_hand import drain
from support.counting import counted_app, form_of
from support.drivers import connect_psycopg
from support.scene import TABLES

from matrixsched import App, call
from matrixsched.clock import ManualClock
from matrixsched.ops import checking
from matrixsched.ops.checking import unknown_handlers
from matrixsched.store.statements import statement
from matrixsched.store.transition import Ask, Conversation, Transition
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

SHARDS = 4
ACTIONS = 400
ROWS_READ_MAX = {"postgresql": 15, "distributed": 22}
"""Of tables and indexes, for an action. Measured: 11, of which 3 are found dead on the way; in distributed form 10 to
19. One that is looked for by its shard instead of its key would cost as many as wait there, a hundred and more."""

# Written for shard 0 … 3 and the time at which the clock of the tests stands.
FUTURE_ACTIONS = """
insert into matrixsched.scheduled_actions
       (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, state,
        scheduled_at, tick, tick_at, created_at, updated_at)
select n % 4, 'aside ' || n, md5('aside ' || n)::uuid, 1, 1, 'work', 'null', '{}', '', 0, 'live',
       now.now + interval '1 day' + n * interval '1 ms', 0, now.now, now.now, now.now
  from generate_series(1, 20000) as n, (select timestamptz '2030-01-01 00:00:00+00') as now (now)
"""
FUTURE_ROWS = """
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, action_id, action_guid, '', scheduled_at, 0, 0, created_at, action_guid, created_at
  from matrixsched.scheduled_actions where action_id like 'aside %'
"""
SUPERSEDE = "update matrixsched.scheduled_actions set action_guid = gen_random_uuid() where action_id like 'aside %'"
FINISH = """
update matrixsched.scheduled_actions set state = 'done', finished_at = created_at
 where action_id like 'aside %'
"""
REQUESTS = """
insert into matrixsched.requests (request_guid, created_at)
select action_guid, created_at from matrixsched.scheduled_actions where action_id like 'aside %'
"""
ASIDE = {
    "nothing": (),
    "future": (FUTURE_ACTIONS, FUTURE_ROWS),
    "superseded": (FUTURE_ACTIONS, FUTURE_ROWS, SUPERSEDE, FUTURE_ROWS),
    "finished": (FUTURE_ACTIONS, REQUESTS, FINISH),
}
FLUSH = "select pg_stat_force_next_flush()"
READ = """
select cast(sum(read) as bigint) as read
  from (select idx_tup_read as read from pg_stat_user_indexes where schemaname = 'matrixsched'
        union all
        select seq_tup_read from pg_stat_user_tables where schemaname = 'matrixsched' and relname <> 'installation'
       ) as reads
"""


def _reading() -> Conversation[int]:
    """How many entries of indexes, and rows of tables without one, were read so far."""
    yield Ask(statement("postgresql", "default", "flush", FLUSH), {})
    (row,) = yield Ask(statement("postgresql", "default", "read", READ), {})
    return int(row["read"])


async def rows_read(app: App, worker: Worker, clock: ManualClock, prefix: str) -> float:
    """For each of `ACTIONS`, from the incoming queue to its recorded outcome."""
    await app.schedule_many(call("work", id=f"{prefix}-{number}") for number in range(ACTIONS))
    before = await app.store.run(Transition("reading", _reading))
    assert await drain(worker, clock) == ACTIONS
    return (await app.store.run(Transition("reading", _reading)) - before) / ACTIONS


async def rows_read_after(dsn: str, texts: Iterable[str]) -> tuple[float, int]:
    """For an action of a worker that has run others before these statements; and how many it may be."""
    clock = ManualClock()
    # The server counts by session, and tells when that session asks it to.
    async with counted_app(dsn, clock, shards=SHARDS, connections=1) as (app, _):

        @app.action("work")
        async def work() -> None: ...

        worker = Worker(app)
        with connect_psycopg(dsn, autocommit=True) as connection:
            for table in TABLES:  # lest it runs in one case and not in another
                connection.execute(f"alter table matrixsched.{table} set (autovacuum_enabled = off)".encode())
            await rows_read(app, worker, clock, "before")
            for text in texts:
                connection.execute(text.encode())
            # What they read themselves is told now, not while the worker is counted.
            connection.execute(FLUSH)
        return await rows_read(app, worker, clock, "after"), ROWS_READ_MAX[form_of(app)]


def too_many(read: float, most: int) -> str:
    return f"{read:.1f} rows are read for an action, and may be {most}"


@pytest.mark.parametrize("aside", ASIDE)
async def test_an_action_costs_a_few_rows_whatever_lies_beside_it(postgres_dsn: str, aside: str) -> None:
    read, most = await rows_read_after(postgres_dsn, ASIDE[aside])
    assert read <= most, too_many(read, most)


async def test_an_action_costs_a_few_rows_also_after_an_empty_queue_was_analysed(postgres_dsn: str) -> None:
    """As autovacuum does where nothing waits, again and again: then every look-up is thought to find one row, by
    whichever index, and the lower one seems cheaper."""
    read, most = await rows_read_after(postgres_dsn, ["vacuum analyze"])
    assert read <= most, too_many(read, most)


async def test_few_that_live_are_looked_for_among_a_bounded_number_of_rows(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `doctor` does, to see whether this App has their handlers."""
    monkeypatch.setattr(checking, "LOOK_MAX", 1000)
    monkeypatch.setattr(checking, "LOOKS", 2)
    async with counted_app(postgres_dsn, ManualClock(), shards=SHARDS, connections=1) as (app, _):
        with connect_psycopg(postgres_dsn, autocommit=True) as connection:
            for text in ASIDE["finished"]:
                connection.execute(text.encode())
            connection.execute("vacuum analyze")
        before = await app.store.run(Transition("reading", _reading))
        assert await unknown_handlers(app) == (0, {})
        assert await app.store.run(Transition("reading", _reading)) - before < 2 * 1000 + 100
