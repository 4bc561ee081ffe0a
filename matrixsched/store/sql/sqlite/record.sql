-- record (sqlite). Promise: an outcome is written only by the attempt that still holds its row, over the version of the
-- action it ran, together with the row's next time or its removal. Answers for each:
--   recorded    written, once
--   superseded  the action was replaced, moved or cancelled meanwhile: kept in the history only; the new version may run
--   lost        the row is no longer held by this attempt: nothing is written
-- Differs from postgresql/record.sql: `judge` reads, the others write what it said by exact key; all in one write
-- transaction, so nothing can be busy. There one snapshot serves all parts; here the order of the parts does that:
-- `unblock` before `again` (a row released just now was not waiting), `forget` before `remember`.

-- name: judge
select e.key as number, a.state, a.lane, a.tick,
       p.action_guid is not null as held, p.interrupted, p.claimed_at
  from json_each(:ended) as e
  left join matrixsched_scheduled_actions a
    on a.shard_id = e.value ->> 0 and a.action_id = e.value ->> 1 and a.action_guid = e.value ->> 2
  left join matrixsched_processing_queue p
    on p.shard_id = e.value ->> 0 and p.action_id = e.value ->> 1 and p.action_guid = e.value ->> 2
   and p.attempt = e.value ->> 3 and p.claimed_by = e.value ->> 4;

-- name: remove
delete from matrixsched_processing_queue
 where (shard_id, action_id, action_guid)
       in (select value ->> 0, value ->> 1, value ->> 2 from json_each(:removed));

-- name: unblock
-- The new version waited for this attempt: its own time counts again.
update matrixsched_processing_queue as p
   set scheduled_at = a.scheduled_at
  from json_each(:superseded) as r
 cross join matrixsched_scheduled_actions a on a.shard_id = r.value ->> 0 and a.action_id = r.value ->> 1
 where p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid
   and p.claimed_by is null and p.scheduled_at > a.scheduled_at;

-- name: again
update matrixsched_processing_queue as p
   set scheduled_at = e.value ->> 3, lane = e.value ->> 4, interrupted = 0, claimed_by = null,
       rescheduled_by = e.value ->> 5, rescheduled_at = {now}
  from json_each(:again) as e
 where p.shard_id = e.value ->> 0 and p.action_id = e.value ->> 1 and p.action_guid = e.value ->> 2;

-- name: record
update matrixsched_scheduled_actions as a
   set state = e.state, finished_at = iif(e.state = 'live', null, {now}),
       scheduled_at = coalesce(e.next_at, a.scheduled_at),
       tick = e.tick, tick_at = e.tick_at, tick_failures = e.tick_failures,
       succeeded = a.succeeded + (e.outcome = 'succeeded'),
       failed = a.failed + (e.outcome in ('failed', 'timed_out')),
       missed = a.missed + (e.outcome = 'missed'),
       interrupted = a.interrupted + e.interrupted + (e.outcome = 'interrupted'),
       consecutive_failures = case when e.outcome = 'succeeded' then 0
                                   when e.outcome in ('failed', 'timed_out') then a.consecutive_failures + 1
                                   else a.consecutive_failures end,
       last_outcome = e.outcome, last_error = e.error, last_started_at = e.claimed_at, last_ended_at = {now}
  from (select value ->> 0 as shard_id, value ->> 1 as action_id, value ->> 2 as action_guid, value ->> 3 as state,
               value ->> 4 as next_at, value ->> 5 as tick, value ->> 6 as tick_at, value ->> 7 as tick_failures,
               value ->> 8 as outcome, value ->> 9 as error, value ->> 10 as interrupted, value ->> 11 as claimed_at
          from json_each(:recorded)) as e
 where a.shard_id = e.shard_id and a.action_id = e.action_id and a.action_guid = e.action_guid;

-- name: forget
-- The last :history_max of an action are kept.
with full as materialized (
    select e.value ->> 0 as shard_id, e.value ->> 1 as action_id,
           (select k.ended_at from matrixsched_attempt_history k
             where k.shard_id = e.value ->> 0 and k.action_id = e.value ->> 1
             order by k.ended_at desc limit 1 offset :history_max - 1) as oldest_kept_at
      from json_each(:went_wrong) as e
)
delete from matrixsched_attempt_history
 where (shard_id, action_id, action_guid, attempt) in (
     select h.shard_id, h.action_id, h.action_guid, h.attempt
       from full f
      cross join matrixsched_attempt_history h on h.shard_id = f.shard_id and h.action_id = f.action_id
      where h.ended_at < f.oldest_kept_at);

-- name: remember
insert into matrixsched_attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
select value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
       value ->> 8, {now}
  from json_each(:remembered)
 where true
on conflict do nothing;
