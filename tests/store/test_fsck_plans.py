"""Looking for faults, and mending them, reads the rows of a shard a few times, whatever is known of the tables."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.plans import WAYS, Plans, Stock, plans_of_all_ways
from support.postgres import PostgresServer

from matrixsched.clock import ManualClock
from matrixsched.rules.faults import Fault, Finding
from matrixsched.store.fsck import AFTER_ALL, FsckPosition, FsckTerms
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.transition import Ask

pytestmark = [
    pytest.mark.undistributed("its plans are of the statements in sql/postgresql/"),
    pytest.mark.direct("plans are asked for in a session of its own"),
]

DO = PostgresTransitions("default", clock=ManualClock())
TERMS = FsckTerms(
    shard_count=4, attempt_lease_max=timedelta(minutes=10), visibility_max=timedelta(hours=12), limit=1000
)
IN_SHARD = 10_000
BATCH = 50
GUID = "00000000-0000-0000-0000-000000000001"

# In each of four shards 10,000 actions; half of them in processing, half new; each tenth with a history.
FILL = f"""
insert into matrixsched.scheduled_actions
       (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, state,
        scheduled_at, tick, tick_at, created_at, updated_at)
select n % 4, 'action ' || n, md5('action ' || n)::uuid, 1, 1, 'greet', 'null', '{{}}', '', 0, 'live',
       now.now + n * interval '1 s', 0, now.now, now.now, now.now
  from generate_series(0, {4 * IN_SHARD - 1}) as n, (select timestamptz '2030-01-01 00:00:00+00') as now (now);
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, action_id, action_guid, lane, scheduled_at, 0, 0, created_at, action_guid, created_at
  from matrixsched.scheduled_actions where action_id ~ '[02468]$';
insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane)
select shard_id, created_at, action_id, action_guid, scheduled_at, lane
  from matrixsched.scheduled_actions where action_id ~ '[13579]$';
insert into matrixsched.attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, claimed_by, started_at, ended_at)
select shard_id, action_id, action_guid, 1, 0, 'failed', action_guid, created_at, created_at
  from matrixsched.scheduled_actions where action_id ~ '7$';
"""
TABLES = ("scheduled_actions", "incoming_queue", "processing_queue", "attempt_history")


def mend(fault: Fault) -> Ask:
    findings = [Finding(fault, 0, f"action {4 * number}", GUID, "") for number in range(BATCH)]
    return next(DO.mend(findings, TERMS).begin())


LOOKS = {
    part: DO._ask_about(
        f"find_in_slice.{part}",
        TERMS,
        shard_id=0,
        first="",
        from_guid=FsckPosition().from_guid,
        last=AFTER_ALL,
        size=IN_SHARD,
    )
    for part in ("actions", "versions", "rows", "history")
}
MENDS = {
    fault.value: mend(fault)
    for fault in Fault
    if fault not in (Fault.TEMPLATE, Fault.SEMAPHORE, Fault.UNBALANCED, Fault.TASK_LEASE, Fault.TASK_TWICE)
}
WHOLE = IN_SHARD * 4 * 3
"""A shard may be a quarter of what is read where all of it is, as a table of that size may be."""


@pytest.fixture(scope="module")
def plans(postgres_server: PostgresServer) -> Plans:
    empty = [*(f"delete from matrixsched.{table}" for table in TABLES), "vacuum analyze"]
    stock = Stock(tables=TABLES, fill=[FILL], empty=empty, refill=FILL)
    return plans_of_all_ways(postgres_server, LOOKS | MENDS, stock)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*LOOKS, *MENDS])
def test_no_row_is_read_for_each_row_of_another_table(plans: Plans, name: str, way: str) -> None:
    plan = plans[way][name]
    assert plan.rows_read <= WHOLE
    assert plan.rows_thrown_away <= WHOLE
