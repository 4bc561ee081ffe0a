"""Planning a window and stopping a campaign read what they need and no more, however much waits."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import anyio
import psycopg
import pytest
from support.plans import explain, first_ask, prepare
from support.postgres import PostgresServer

from matrixsched.clock import ManualClock
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.postgresql.transitions import PostgresTransitions

pytestmark = [
    pytest.mark.undistributed("its plans are of the statements in sql/postgresql/"),
    pytest.mark.direct("plans are asked for in a session of its own"),
]

DO = PostgresTransitions("default", clock=ManualClock())
LANES, KINDS, CAP, BATCH = 40, 10, 20, 50
NAMES = [f"quota|t{number % KINDS}|z{number // KINDS}|0||send" for number in range(LANES)]

# In each of forty lanes 500 messages of ten templates that are due; beside them 50,000 actions of the future.
FILL = """
create function pg_temp.fill(prefix text, count integer, template integer, at interval) returns void language sql as $$
    insert into matrixsched.scheduled_actions
           (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, template,
            state, scheduled_at, tick, tick_at, created_at, updated_at)
    select n % 4, prefix || n, md5(prefix || n)::uuid, 1, 1, 'send', 'null', '{}',
           case when template > 0
                then 'quota|t' || n % template || '|z' || n / template % 4 || '|0||send' else '' end,
           0, case when template > 0 then 't' || n % template end, 'live',
           now.now + at - n * interval '1 ms', 0, now.now, now.now, now.now
      from generate_series(0, count - 1) as n, (select timestamptz '2030-01-01 00:00:00+00') as now (now)
$$;
select pg_temp.fill('future ', 50000, 0, '1 day'), pg_temp.fill('message ', 20000, 10, '-1 min');
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, action_id, action_guid, lane, scheduled_at, 0, 0, created_at,
       '00000000-0000-0000-0000-000000000002', created_at
  from matrixsched.scheduled_actions;
"""

COUNTED = [[name for name in NAMES if name.startswith(f"quota|t{kind}|")] for kind in range(KINDS)]
ASKS = {
    "due": next(DO._due_lanes()),
    "count": next(DO._count_due(COUNTED, [CAP] * KINDS)),
    "count_template": first_ask(DO.count_template("t1", count_max=BATCH)),
    "cancel_template": first_ask(
        DO.cancel_template_batch("t1", guids=[uuid.UUID(int=number) for number in range(BATCH)], after=(-1, ""))
    ),
}
READ_AT_MOST = {
    "due": LANES,  # its head of each
    "count": KINDS * CAP,
    "count_template": BATCH,
    "cancel_template": 7 * BATCH,  # chosen, its rows asked for, written, deleted
}


async def install(dsn: str) -> None:
    store = PostgresStore(dsn, "default", connections=1)
    await store.open()
    await store.upgrade(4)
    await store.close()


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    name = f"quota_plans_{uuid.uuid4().hex}"
    dsn = postgres_server.create_database(name)
    anyio.run(install, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FILL.encode())
        connection.execute("vacuum analyze")
        for statement, asked in ASKS.items():
            prepare(connection, statement, asked)
        yield connection
    postgres_server.drop_database(name)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ASKS)
def test_no_more_is_read_than_is_needed(connection: psycopg.Connection[Any], name: str, mode: str):
    connection.execute(f"set plan_cache_mode = {mode}".encode())
    plan = explain(connection, name, ASKS[name])
    assert plan.full_scans == []
    assert plan.rows_read <= READ_AT_MOST[name]
