"""Semaphores cost what is active, however many wait: in one of 200,000 tasks, beside 10,000 that are at rest."""

from __future__ import annotations

import hashlib
import sqlite3
import uuid
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from support.plans import WAYS, Plans, Stock, filled_sqlite, first_ask, plans_of_all_ways, sqlite_plan
from support.postgres import PostgresServer

from matrixsched.clock import ManualClock
from matrixsched.rules.semaphore import Semaphore, Task, TaskState
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.semaphores import NewTask, TaskName
from matrixsched.store.statements import load, statement
from matrixsched.store.transition import Ask

pytestmark = [
    pytest.mark.undistributed("its plans are of the statements in sql/postgresql/"),
    pytest.mark.direct("plans are asked for in a session of its own"),
]

CLOCK = ManualClock()
DO = PostgresTransitions("default", clock=CLOCK)
LATER = PostgresTransitions("default", clock=ManualClock(CLOCK.now() + timedelta(hours=2)))
WAITING, IDLE, HELD, BATCH, LIMIT = 200_000, 10_000, 1_000, 1_000, 50
POOL = Semaphore(key="pool", active=HELD, try_release=900, hold_for=timedelta(hours=1))

# Half of those that wait are of one priority, and enqueued at once, as in bulk; in each semaphore at rest one task
# holds a place for good. Marks of four changes, three of them of the same semaphore.
FILL = """
insert into matrixsched.semaphores (key, active, try_release, hold_for, created_at, updated_at)
select key, 1000, 900, interval '1 h', timestamptz '2030-01-01 00:00:00+00', timestamptz '2030-01-01 00:00:00+00'
  from (select 'pool' union all select 'idle ' || n from generate_series(0, 9999) as n) as k (key);
insert into matrixsched.semaphore_tasks
       (semaphore, task_id, priority, state, guid, enqueued_at, acquired_at, hold_until)
select semaphore, task_id, 1, 'acquired', md5(task_id)::uuid, timestamptz '2030-01-01 00:00:00+00',
       timestamptz '2030-01-01 00:00:00+00', hold_until
  from (select 'pool', 'held ' || n, timestamptz '2030-01-01 01:00:00+00' from generate_series(0, 999) as n
        union all
        select 'idle ' || n, 'idle', null from generate_series(0, 9999) as n) as h (semaphore, task_id, hold_until);
insert into matrixsched.semaphore_changes (semaphore, change_guid)
select key, gen_random_uuid() from (values ('pool'), ('pool'), ('pool'), ('idle 7')) as c (key);
insert into matrixsched.requests
select gen_random_uuid(), timestamptz '2030-01-01 00:00:00+00' from generate_series(1, 20000) as n;
"""


FILL_WAITING = """
insert into matrixsched.semaphore_tasks (semaphore, task_id, priority, state, guid, enqueued_at)
select 'pool', 'waiting ' || n, case when n < 100000 then 5000 else n % 1000 end, 'waiting', md5('waiting ' || n)::uuid,
       timestamptz '2030-01-01 00:00:00+00' - case when n < 100000 then interval '1 h' else n * interval '1 ms' end
  from generate_series(0, 199999) as n;
"""


def guid_of(id: str) -> UUID:
    return UUID(hashlib.md5(id.encode(), usedforsecurity=False).hexdigest())


def names(prefix: str, count: int = BATCH) -> list[TaskName]:
    return [TaskName(f"{prefix} {number}", guid_of(f"{prefix} {number}")) for number in range(count)]


def a_task(id: str, state: TaskState) -> Task:
    return Task(id=id, priority=1, state=state, guid=guid_of(id), enqueued_at=CLOCK.now())


def enqueueing(prefix: str) -> Ask:
    tasks = [NewTask(f"{prefix} {number}", 7.5, uuid.uuid4()) for number in range(BATCH)]
    return first_ask(DO.enqueue_tasks("pool", tasks, uuid.uuid4(), change_guid=uuid.uuid4(), tell=False))


def releasing(prefix: str) -> Ask:
    return first_ask(
        DO.release_tasks("pool", names(prefix), uuid.uuid4(), change_guid=uuid.uuid4(), missing_ok=True, tell=False)
    )


def stepping_back(id: str) -> Ask:
    request, guid, change = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    task = TaskName(id, guid_of(id))
    return first_ask(DO.step_back("pool", task, request, priority=None, guid=guid, change_guid=change, tell=False))


def enqueued_before(prefix: str) -> Ask:
    return next(DO._enqueued_before("pool", [NewTask(one.id, 7.5, guid_of(one.id)) for one in names(prefix)]))


def looking_for_late(*keys: str) -> Ask:
    looking = LATER.changed_semaphores(told_of=list(keys)).begin()
    next(looking)
    return looking.send([{"keys": [], "some_are_late": True}])


WRITTEN = [
    *(a_task(f"waiting {number}", TaskState.WAITING) for number in range(HELD // 2)),
    *(a_task(f"held {number}", TaskState.ACQUIRED) for number in range(HELD // 2)),
]
HOLDERS = [a_task(f"held {number}", TaskState.ACQUIRED) for number in range(HELD)]
NEW_GUIDS = [uuid.uuid4() for _ in HOLDERS]
ASKS: dict[str, tuple[Ask, int]] = {
    "waiting, the first few": (first_ask(DO.waiting_tasks("pool", limit=LIMIT)), LIMIT),
    "waiting, for a balance": (first_ask(DO.waiting_tasks("pool", limit=HELD)), HELD),
    "waiting, nobody does": (first_ask(DO.waiting_tasks("idle 7", limit=LIMIT)), 0),
    "held": (first_ask(DO.held_tasks("pool", limit=1_000_000)), HELD),
    "held, at rest": (first_ask(DO.held_tasks("idle 7", limit=1_000_000)), 1),
    "find_tasks": (first_ask(DO.find_tasks("pool", [f"held {number}" for number in range(BATCH)])), BATCH),
    "find_task": (first_ask(DO.find_task("pool", "waiting 77")), 1),
    # The first of 100,000 that were enqueued at once, the last of them, and two of the others.
    "position, the very first": (first_ask(DO.task_position("pool", "waiting 0", count_max=LIMIT)), 1),
    "position, last of its like": (first_ask(DO.task_position("pool", "waiting 99999", count_max=LIMIT)), LIMIT + 1),
    "position, between": (first_ask(DO.task_position("pool", "waiting 150500", count_max=LIMIT)), LIMIT + 1),
    "position, last": (first_ask(DO.task_position("pool", "waiting 100000", count_max=LIMIT)), LIMIT + 1),
    "count": (first_ask(DO.count_tasks("pool", count_max=LIMIT)), HELD + LIMIT + 1),
    "changed": (first_ask(DO.changed_semaphores()), 20),
    "changed, all places are late": (first_ask(LATER.changed_semaphores()), 1 + 20),
    "late": (looking_for_late("pool", *(f"idle {number}" for number in range(BATCH))), 1),
    "enqueue": (enqueueing("new"), BATCH),
    "enqueue again": (enqueueing("waiting"), BATCH),
    "enqueue, sent before": (enqueued_before("waiting"), BATCH),
    "carried_out": (first_ask(DO.carried_out([uuid.uuid4()])), 1),
    "bind_requests": (first_ask(DO.bind_requests({uuid.uuid4(): uuid.uuid4()})), 1),
    "release": (releasing("held"), 2 * BATCH + 1),
    "release, they wait": (releasing("waiting"), 2 * BATCH + 1),
    "renew": (first_ask(DO.renew_tasks("pool", names("held"))), 3 * BATCH),
    "semaphores": (first_ask(DO.semaphores(after="idle 5", limit=LIMIT)), LIMIT),
    "find_semaphore": (first_ask(DO.find_semaphore("pool")), 1),
    "semaphores.hold": (first_ask(DO.update_semaphore("pool", lambda _: POOL, uuid.uuid4())), 1),
    "semaphores.update": (next(DO._write_semaphore(POOL, uuid.uuid4())), 1),
    "step_back": (stepping_back("held 7"), 2),
    "step_back, it waits": (stepping_back("waiting 7"), 2),
    "balance.hold": (next(DO._hold_semaphore("pool")), 1),
    "balance.seen": (next(DO._forget_changes("pool")), 8),
    "balance.lapse": (next(DO._lapse("pool", HOLDERS, NEW_GUIDS)), HELD),
    "balance.lapse, all places": (next(LATER._lapse("pool", HOLDERS, NEW_GUIDS)), 2 * HELD),
    "balance.keep": (next(DO._keep_for_good("pool")), 2 * HELD),
    "balance.keep, at rest": (next(DO._keep_for_good("idle 7")), 1),
    "balance.write": (next(DO._write_states(POOL, WRITTEN)), 2 * HELD),
    "balance.done": (next(DO._end_balance("pool", uuid.uuid4())), 1),
}
"""Each with the number of rows that it may read of the tables."""
STOCK = Stock(
    tables=("semaphores", "semaphore_tasks", "semaphore_changes", "requests"),
    fill=(FILL + FILL_WAITING,),
    empty=(
        "delete from matrixsched.semaphore_tasks where state = 'waiting'",
        "vacuum analyze matrixsched.semaphore_tasks",
    ),
    refill=FILL_WAITING,
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
with recursive n (n) as (select 0 union all select n + 1 from n where n < 19999)
insert into matrixsched_semaphore_tasks (semaphore, task_id, priority, state, guid, enqueued_at, acquired_at)
select iif(n % 3, 'pool', 'idle ' || n), 'task ' || n, 0, iif(n % 5, 'waiting', 'acquired'), 'guid', n,
       iif(n % 5, null, n)
  from n;
insert into matrixsched_semaphores (key, active, try_release, created_at, updated_at)
select distinct semaphore, 1, 0, 0, 0 from matrixsched_semaphore_tasks;
"""
SQLITE_HOT = sorted(
    name
    for name in load("sqlite", "default")
    if name.split(".")[0]
    in {
        "semaphores",
        "semaphore_tasks",
        "enqueue_tasks",
        "release_tasks",
        "renew_tasks",
        "step_back",
        "balance",
        "carried_out",
        "bind_requests",
    }
)


@pytest.fixture(scope="module", params=["analysed", "never analysed"])
def sqlite(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with filled_sqlite(SQLITE_FILL, analysed=request.param == "analysed") as connection:
        yield connection


def reads_a_whole_semaphore(plan: list[str]) -> bool:
    steps = [step for step in plan if "semaphore_changes" not in step]  # which a balance takes away altogether
    return any(step.startswith("SEARCH") and step.endswith("USING PRIMARY KEY (semaphore=?)") for step in steps)


@pytest.mark.parametrize("name", SQLITE_HOT)
def test_on_sqlite_those_that_wait_are_not_read_for_others(sqlite: sqlite3.Connection, name: str) -> None:
    hot = load("sqlite", "default")[name]
    plan = sqlite_plan(sqlite, hot)
    assert not reads_a_whole_semaphore(plan)
    assert [step for step in plan if "FOR ORDER BY" in step] == []


def test_on_sqlite_that_would_be_seen(sqlite: sqlite3.Connection) -> None:
    text = "select guid from matrixsched_semaphore_tasks where semaphore = :semaphore and guid > ''"
    assert reads_a_whole_semaphore(sqlite_plan(sqlite, statement("sqlite", "default", "whole", text)))
