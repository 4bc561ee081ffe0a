"""Workers read no more than they need, however much is held back: in long lanes, and in many."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import anyio
import psycopg
import pytest
from support.interleaving import LEASE
from support.plans import Plan, explain, first_ask, prepare
from support.postgres import PostgresServer

from matrixsched.clock import ManualClock
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.values import GATED_LANES_MAX

pytestmark = [
    pytest.mark.undistributed("its plans are of the statements in sql/postgresql/"),
    pytest.mark.direct("plans are asked for in a session of its own"),
]

CLOCK = ManualClock()
DO = PostgresTransitions("default", clock=CLOCK)
SYNC = UUID(int=1)
ROOM = 50
KEYS = 10_000
LONG = [f"limit|0|long {number}|send" for number in range(4)]

# Four lanes of 10,000 rows, 10,000 lanes of one row, and 50,000 actions of the future; shard 0 is ours.
FILL = """
create function pg_temp.fill(prefix text, count integer, lane text, at interval) returns void language sql as $$
    insert into matrixsched.scheduled_actions
           (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority,
            state, scheduled_at, tick, tick_at, created_at, updated_at)
    select n % 4, prefix || n, md5(prefix || n)::uuid, 1, 1, 'send', 'null', '{}', replace(lane, '#', n::text), 0,
           'live', now.now + at - n * interval '1 ms', 0, now.now, now.now, now.now
      from generate_series(0, count - 1) as n, (select timestamptz '2030-01-01 00:00:00+00') as now (now)
$$;
select pg_temp.fill('future ', 50000, '', '1 day'), pg_temp.fill('key ', 10000, 'limit|0|key #|send', '-1 min');
select pg_temp.fill('long ' || n || ' ', 10000, 'limit|0|long ' || n || '|send', '-1 h')
  from generate_series(0, 3) as n;
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, action_id, action_guid, lane, scheduled_at, 0, 0, created_at,
       '00000000-0000-0000-0000-000000000002', created_at
  from matrixsched.scheduled_actions;
insert into matrixsched.held_lanes (lane, priority, handler, ready_at)
select distinct lane, 0, 'send', timestamptz '2030-01-01 01:00:00+00'
  from matrixsched.processing_queue
 where lane <> '';
update matrixsched.held_lanes set ready_at = timestamptz '2030-01-01 00:00:00+00' where lane like 'limit|0|long%';
insert into matrixsched.limits (name, updated_at, next_slot_ns)
select 'key:key ' || n, timestamptz '2030-01-01 00:00:00+00', 0 from generate_series(0, 9999) as n;
update matrixsched.shard_locks
   set locked = true, last_lock_guid = '00000000-0000-0000-0000-000000000001',
       last_heartbeat_at = timestamptz '2030-01-01 00:00:00+00'
 where shard_id = 0;
"""

LATER = PostgresTransitions("default", clock=ManualClock(CLOCK.now() + timedelta(hours=2)))
BEFORE = PostgresTransitions("default", clock=ManualClock(CLOCK.now() - timedelta(seconds=1)))


def acquiring(do: PostgresTransitions) -> Any:
    return first_ask(
        do.acquire_shard(sync_guid=uuid.uuid4(), holder="me", lease=LEASE, lanes=[], gated_handlers=["send"])
    )


ASKS = {
    "acquire, some lanes are ready": acquiring(DO),
    "acquire, all are ready": acquiring(LATER),
    "acquire, none is ready": acquiring(BEFORE),
    "count_held": next(DO._count_held(0, LONG, ROOM)),
    "lock_limits": next(DO._lock_limits([f"key:key {number}" for number in range(ROOM)])),
    "claim": next(DO._claim_admitted(0, SYNC, dict.fromkeys(LONG, ROOM // 4), 1, LEASE)),
    "relist_lanes": first_ask(DO.relist_lanes(every=timedelta(0))),
}
READ_AT_MOST = {
    "acquire, some lanes are ready": 8 * len(LONG),
    "acquire, all are ready": 3 * GATED_LANES_MAX,
    "acquire, none is ready": 20,  # when the next row of the future is due in each shard
    "count_held": len(LONG) * ROOM,
    "lock_limits": 0,
    "claim": 8 * ROOM,
    "relist_lanes": 3 * (KEYS + len(LONG)),  # each lane once, and its head: a chore of one worker, once in a second
}


async def install(dsn: str) -> None:
    store = PostgresStore(dsn, "default", connections=1)
    await store.open()
    await store.upgrade(4)
    await store.close()


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    name = f"gate_plans_{uuid.uuid4().hex}"
    dsn = postgres_server.create_database(name)
    anyio.run(install, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FILL.encode())
        connection.execute("vacuum analyze")
        for number, asked in enumerate(ASKS.values()):
            prepare(connection, f"statement_{number}", asked)
        yield connection
    postgres_server.drop_database(name)


def plan_of(connection: psycopg.Connection[Any], name: str) -> Plan:
    return explain(connection, f"statement_{list(ASKS).index(name)}", ASKS[name])


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ASKS)
def test_no_more_is_read_than_is_needed(connection: psycopg.Connection[Any], name: str, mode: str):
    connection.execute(f"set plan_cache_mode = {mode}".encode())
    plan = plan_of(connection, name)
    assert set(plan.full_scans) <= {"incoming_queue"}  # which is empty
    assert plan.rows_read <= READ_AT_MOST[name]
    assert plan.rows_thrown_away <= max(4 * ROOM, READ_AT_MOST[name])
