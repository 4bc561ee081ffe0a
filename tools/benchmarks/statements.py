"""SQL of the benchmarks' own, written for the default installation; the protocol's is the library's."""

from __future__ import annotations

FUTURE_ACTIONS = """
insert into matrixsched.scheduled_actions
       (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, state,
        scheduled_at, tick, tick_at, created_at, updated_at)
select n % {shards}, 'future-' || n, gen_random_uuid(), 1, 1, 'count', '0', '{{}}', '', 0, 'live',
       now() + interval '1 day' + n * interval '1 millisecond', 0,
       now() + interval '1 day' + n * interval '1 millisecond', now(), now()
  from generate_series(1, {count}) as n
"""

FUTURE_ROWS = """
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, action_id, action_guid, lane, scheduled_at, 0, 0, now(), gen_random_uuid(), now()
  from matrixsched.scheduled_actions
"""

TRANSACTIONS = """
select xact_commit + xact_rollback from pg_stat_database where datname = current_database()
"""

STATES = """
select state, count(*), sum(succeeded), sum(failed + interrupted + missed)
  from matrixsched.scheduled_actions
 where action_id not like 'future-%'
 group by state
"""

ROWS_LEFT = """
select (select count(*) from matrixsched.incoming_queue),
       (select count(*) from matrixsched.processing_queue where action_id not like 'future-%'),
       (select count(*) from matrixsched.attempt_history)
"""

ACTIONS_WRITTEN = "select count(*) from matrixsched.scheduled_actions"
