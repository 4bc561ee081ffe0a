"""Queues cost what is handed out and settled, however much is delayed, taken or dead: with 200,000 of each at hand."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from support.plans import WAYS, Plans, Stock, filled_sqlite, first_ask, plans_of_all_ways, sqlite_plan
from support.postgres import PostgresServer

from matrixsched.clock import ManualClock
from matrixsched.rules.queues import VISIBILITY_MAX, NewItem, Receipt
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.queues import Letter, Retry
from matrixsched.store.statements import load, statement
from matrixsched.store.transition import Ask

pytestmark = [
    pytest.mark.undistributed("its plans are of the statements in sql/postgresql/"),
    pytest.mark.direct("plans are asked for in a session of its own"),
]

CLOCK = ManualClock()
DO = PostgresTransitions("default", clock=CLOCK)
BATCH, LIMIT, EACH = 500, 50, 200_000
MINUTE = timedelta(minutes=1)
GUID = UUID(int=7)

# Queue 1: 200,000 ready, as many taken, as many delayed; queue 2 has only delayed ones, queue 3 only dead letters,
# queues 10 to 1,009 a few of each.
FILL_TASKS = """
insert into matrixsched.queue_tasks (id, queue, attempts, created_at, start_at, due_at, receipt, data)
select n, case when n <= 600000 then 1 when n <= 700000 then 2 else 10 + n % 1000 end, 0,
       timestamptz '2030-01-01 00:00:00+00', due_at, due_at,
       case when n > 200000 and n <= 400000 then uuid '00000000-0000-0000-0000-000000000007' end, 'x'
  from generate_series(1, 704000) as n
 cross join lateral (select timestamptz '2030-01-01 00:00:00+00'
                            + case when n <= 200000 then n * interval '-1 ms'
                                   when n <= 400000 then n * interval '0.1 ms'
                                   when n <= 700000 then n * interval '1 s'
                                   else (n % 7 - 3) * interval '1 h' end) as d (due_at);
"""
FILL_REST = """
insert into matrixsched.queue_dead_letters (queue, id, attempts, created_at, start_at, died_at, reason, data)
select 3, n, 0, now(), now(), now(), 'no use', 'x' from generate_series(1000001, 1100000) as n;
insert into matrixsched.queue_settings (queue, updated_at) select n, now() from generate_series(1, 20) as n;
insert into matrixsched.requests
select gen_random_uuid(), timestamptz '2030-01-01 00:00:00+00' from generate_series(1, 20000) as n;
"""

TAKEN = [Receipt(id, GUID) for id in range(200_001, 200_001 + BATCH)]
VOID = [Receipt(id, uuid.uuid4()) for id in range(1, 1 + BATCH)]
NEW = [NewItem(queue=1, data=b"x")] * BATCH


def only(name: str, **parameters: object) -> Ask:
    return DO._query(name, **parameters)


ASKS: dict[str, tuple[Ask, int]] = {
    "put": (first_ask(DO.put_tasks(NEW, uuid.uuid4(), tell=False)), 0),
    "put, sent before": (only("request_ids.find", request_guid=uuid.uuid4()), 1),
    "take": (first_ask(DO.take_tasks(1, BATCH, uuid.uuid4(), visibility=MINUTE)), 2 * BATCH),
    "take, all are delayed": (first_ask(DO.take_tasks(2, BATCH, uuid.uuid4(), visibility=MINUTE)), 0),
    "take, a few": (first_ask(DO.take_tasks(17, BATCH, uuid.uuid4(), visibility=MINUTE)), 20),
    "take, no such queue": (first_ask(DO.take_tasks(5, BATCH, uuid.uuid4(), visibility=MINUTE)), 0),
    "done": (first_ask(DO.done_tasks(TAKEN)), BATCH),
    "done, void": (first_ask(DO.done_tasks(VOID)), BATCH),
    "done, sent again": (only("done_tasks.there", ids=[receipt.task_id for receipt in TAKEN]), BATCH),
    "retry": (first_ask(DO.retry_tasks([Retry(receipt, MINUTE) for receipt in TAKEN], uuid.uuid4())), BATCH),
    "set aside": (first_ask(DO.set_aside_tasks([Letter(one, "no use") for one in TAKEN], uuid.uuid4())), BATCH),
    "extend": (first_ask(DO.extend_tasks(TAKEN, visibility=MINUTE)), 2 * BATCH),
    "count": (first_ask(DO.count_queues(count_max=1)), 10_000),
    "count ready": (first_ask(DO.count_ready(list(range(1, 21)), count_max=LIMIT)), LIMIT + 11 * 4),
    "count ready, none is": (first_ask(DO.count_ready([2, 3, 5], count_max=LIMIT)), 0),
    "look": (first_ask(DO.look_queues(list(range(1, 21)), within=MINUTE)), 2 * 20 + 20),
    "look, all are delayed, dead or not there": (first_ask(DO.look_queues([2, 3, 5], within=MINUTE)), 1 + 20),
    "peek": (first_ask(DO.peek_tasks(1, limit=LIMIT)), LIMIT),
    "delayed": (first_ask(DO.retry_now(2, ids=None, limit=LIMIT, tell=False)), LIMIT),
    "hasten": (only("queue_tasks.hasten", queue=1, ids=list(range(400_001, 400_501))), 2 * BATCH),
    "waiting": (first_ask(DO.purge_tasks(1, ids=None, limit=LIMIT)), LIMIT),
    "purge": (only("queue_tasks.purge", queue=1, ids=list(range(1, BATCH + 1))), 2 * BATCH),
    "sweep": (first_ask(DO.sweep_tasks(100_000, limit=BATCH, reach=VISIBILITY_MAX)), BATCH),
    "dead letters": (first_ask(DO.dead_letters(3, after=1_050_000, limit=LIMIT)), LIMIT),
    "redrive, the first": (first_ask(DO.redrive(3, ids=None, limit=LIMIT, tell=False)), LIMIT),
    "redrive, the old": (only("dead_letters.times", queue=3, after=1_050_000, limit=LIMIT), LIMIT),
    "redrive": (only("dead_letters.redrive", queue=3, ids=list(range(1_000_001, 1_000_501))), 2 * BATCH),
    "purge dead": (only("dead_letters.purge", queue=3, ids=list(range(1_000_001, 1_000_501))), 2 * BATCH),
}
"""Each with the number of rows that it may read of the tables."""
STOCK = Stock(
    tables=("queue_tasks", "queue_dead_letters", "queue_settings", "requests"),
    fill=(FILL_TASKS + FILL_REST, "alter table matrixsched.queue_tasks alter id restart with 10000000"),
    empty=("delete from matrixsched.queue_tasks where id <= 200000", "vacuum analyze matrixsched.queue_tasks"),
    refill=FILL_TASKS.replace("generate_series(1, 704000)", "generate_series(1, 200000)"),
)


@pytest.fixture(scope="module")
def plans(postgres_server: PostgresServer) -> Plans:
    return plans_of_all_ways(postgres_server, {name: ask for name, (ask, _) in ASKS.items()}, STOCK)


@pytest.mark.parametrize("made", WAYS)
@pytest.mark.parametrize("name", ASKS)
def test_no_more_is_read_than_is_needed(plans: Plans, name: str, made: str) -> None:
    plan = plans[made][name]
    assert plan.rows_read <= ASKS[name][1]
    assert plan.rows_thrown_away <= 2 * BATCH
    # Where an index is read before the table, its entries count as much.
    entries = [node for node in plan.nodes() if node["Node Type"] == "Bitmap Index Scan"]
    assert sum(node["Actual Rows"] * node["Actual Loops"] for node in entries) <= 3 * ASKS[name][1] + LIMIT


# SQLite.

SQLITE_FILL = """
with recursive n (n) as (select 1 union all select n + 1 from n where n < 20000)
insert into matrixsched_queue_tasks (queue, attempts, created_at, start_at, due_at, receipt, data)
select 1 + n % 3, 0, n, n, iif(n % 2, n, 1000000 + n), iif(n % 2, null, 'guid'), x'00' from n;
insert into matrixsched_queue_dead_letters (queue, id, attempts, created_at, start_at, died_at, reason, data)
select queue, id + 1000000, 0, 0, 0, 0, 'no use', data from matrixsched_queue_tasks;
insert into matrixsched_queue_settings (queue, updated_at) values (1, 0), (2, 0);
"""
SQLITE_HOT = sorted(
    name
    for name in load("sqlite", "default")
    if name.split(".")[0]
    in {
        "put_tasks",
        "take_tasks",
        "done_tasks",
        "retry_tasks",
        "set_aside_tasks",
        "extend_tasks",
        "queue_tasks",
        "count_queues",
        "count_ready",
        "look_queues",
        "dead_letters",
        "request_ids",
    }
)


@pytest.fixture(scope="module", params=["analysed", "never analysed"])
def sqlite(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with filled_sqlite(SQLITE_FILL, analysed=request.param == "analysed") as connection:
        yield connection


@pytest.mark.parametrize("name", SQLITE_HOT)
def test_on_sqlite_no_queue_is_read_as_a_whole(sqlite: sqlite3.Connection, name: str) -> None:
    plan = sqlite_plan(sqlite, load("sqlite", "default")[name])
    assert [step for step in plan if "FOR ORDER BY" in step] == []
    assert [step for step in plan if re.match(r"SCAN (t|d|matrixsched_queue_(tasks|dead_letters))\b", step)] == []


def test_on_sqlite_that_would_be_seen(sqlite: sqlite3.Connection) -> None:
    text = "select t.id from matrixsched_queue_tasks t where t.attempts > :limit"
    assert sqlite_plan(sqlite, statement("sqlite", "default", "whole", text)) == ["SCAN t"]
