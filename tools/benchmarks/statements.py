"""SQL of the benchmarks' own, written for the default installation; the protocol's is the library's."""

from __future__ import annotations

# Actions whose ids begin with "aside-" are there to be in the way: nobody is expected to run them.

# As if they had been scheduled and moved long ago, due a millisecond apart, the first one {ahead_s} seconds from now.

STAGED_ACTIONS = {
    "postgresql": """
insert into matrixsched.scheduled_actions
       (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, template, zone,
        state, scheduled_at, tick, tick_at, created_at, updated_at)
select n % {shards}, '{prefix}-' || n, gen_random_uuid(), 1, 1, 'count', convert_to(cast(n as text), 'UTF8'), '{{}}',
       {lane}, 0, {template}, {zone}, 'live', scheduled_at, 0, scheduled_at, now(), now()
  from (select n, now() + {ahead_s} * interval '1 second' + n * interval '1 millisecond' as scheduled_at
          from generate_series(0, {count} - 1) as n)
""",
    "sqlite": """
insert into matrixsched.scheduled_actions
       (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, template, zone,
        state, scheduled_at, tick, tick_at, created_at, updated_at)
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n + 1 < {count}),
     times (now) as (select unixepoch() * 1000000)
select n % {shards}, '{prefix}-' || n, lower(hex(randomblob(4))) || printf('-0000-4000-8000-%012x', n), 1, 1, 'count',
       cast(cast(n as text) as blob), '{{}}', {lane}, 0, {template}, {zone}, 'live',
       now + {ahead_s} * 1000000 + n * 1000, 0, now + {ahead_s} * 1000000 + n * 1000, now, now
  from numbers, times
""",
}

STAGED_ROWS = {
    "postgresql": """
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, action_id, action_guid, lane, scheduled_at, 0, 0, created_at, gen_random_uuid(), created_at
  from matrixsched.scheduled_actions
 where action_id like '{prefix}-%'
""",
    "sqlite": """
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, action_id, action_guid, lane, scheduled_at, 0, 0, created_at, action_guid, created_at
  from matrixsched.scheduled_actions
 where action_id like '{prefix}-%'
""",
}

TRANSACTIONS = """
select xact_commit + xact_rollback from pg_stat_database where datname = current_database()
"""

STATES = """
select state, count(*), sum(succeeded), sum(failed + interrupted + missed)
  from matrixsched.scheduled_actions
 where action_id not like 'aside-%'
 group by state
"""

ROWS_LEFT = """
select (select count(*) from matrixsched.incoming_queue),
       (select count(*) from matrixsched.processing_queue where action_id not like 'aside-%'),
       (select count(*) from matrixsched.attempt_history)
"""

TABLE_BYTES = "select pg_total_relation_size('matrixsched.{table}')"

CLAIMED = "select count(*) from matrixsched.processing_queue where claimed_by is not null"

WAITING = "select count(*) from matrixsched.processing_queue"

ACTIONS_WRITTEN = "select count(*) from matrixsched.scheduled_actions"

USED_UP_KEYS = """
insert into matrixsched.limits (name, next_slot_ns, updated_at)
select 'key:customer-' || n, cast(extract(epoch from now() + interval '1 day') * 1000000000 as bigint), now()
  from generate_series(0, {keys} - 1) as n
"""

KEYS_LISTED = """
insert into matrixsched.held_lanes (lane, priority, handler, ready_at)
select distinct lane, 0, 'count', now() + interval '5 minutes'
  from matrixsched.processing_queue
 where lane like 'limit|%'
"""

GRANTED = """
select w.max_to_send, w.templates,
       (select sum(g.granted) from matrixsched.quota_grants g where g.begins_at = w.begins_at)
  from matrixsched.quota_windows w
"""

FORGET_GRANTS = "delete from matrixsched.quota_grants"
FORGET_WINDOWS = "delete from matrixsched.quota_windows"

# Tasks of the semaphore "pool", as if they had been enqueued an hour ago and balanced since; their priorities are from
# `above` to less than one more.

SEMAPHORE_TASKS = {
    "postgresql": """
insert into matrixsched.semaphore_tasks (semaphore, task_id, priority, state, guid, enqueued_at, acquired_at)
select 'pool', '{prefix}-' || n, {above} + n % 1000 / 1000.0, {state}, gen_random_uuid(), enqueued_at, {acquired_at}
  from (select n, now() - interval '1 hour' + n * interval '1 millisecond' as enqueued_at
          from generate_series(0, {count} - 1) as n)
""",
    "sqlite": """
insert into matrixsched.semaphore_tasks (semaphore, task_id, priority, state, guid, enqueued_at, acquired_at)
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n + 1 < {count})
select 'pool', '{prefix}-' || n, {above} + n % 1000 / 1000.0, {state},
       printf('%08x-0000-4000-8000-%012x', {above}, n), enqueued_at, {acquired_at}
  from (select n, (unixepoch() - 3600) * 1000000 + n * 1000 as enqueued_at from numbers)
""",
}

# Semaphores at rest: each has a place that is held and renewed in time, and a task that waits for it.

IDLE_SEMAPHORES = {
    "postgresql": (
        """
insert into matrixsched.semaphores (key, active, try_release, hold_for, balanced_at, created_at, updated_at)
select 'idle-' || n, 1, 1, interval '1 day', now(), now(), now() from generate_series(0, {count} - 1) as n
""",
        """
insert into matrixsched.semaphore_tasks
       (semaphore, task_id, priority, state, guid, enqueued_at, acquired_at, hold_until)
select key, 'held', 1, 'acquired', gen_random_uuid(), now(), now(), now() + interval '1 day' from matrixsched.semaphores
union all
select key, 'waiting', 0, 'waiting', gen_random_uuid(), now(), null, null from matrixsched.semaphores
""",
    ),
    "sqlite": (
        """
insert into matrixsched.semaphores (key, active, try_release, hold_for, balanced_at, created_at, updated_at)
with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n + 1 < {count}),
     times (now) as (select unixepoch() * 1000000)
select 'idle-' || n, 1, 1, 86400000000, now, now, now from numbers, times
""",
        """
insert into matrixsched.semaphore_tasks
       (semaphore, task_id, priority, state, guid, enqueued_at, acquired_at, hold_until)
select key, 'held', 1, 'acquired', key, created_at, created_at, created_at + hold_for from matrixsched.semaphores
union all
select key, 'waiting', 0, 'waiting', key, created_at, null, null from matrixsched.semaphores
""",
    ),
}

FORGET_EVENTS = "delete from matrixsched.scheduled_actions"
