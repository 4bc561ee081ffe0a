-- record (sqlite). Promise: an outcome is written only by the attempt that still holds its row, over the version of the
-- action it ran, together with the row's next time or its removal. Answers for each:
--   recorded    written, once
--   superseded  the action was replaced, moved or cancelled meanwhile: kept in the history only; the new version may run
--   lost        the row is no longer held by this attempt: nothing is written
-- Differs from postgresql/record.sql: `judge` reads, the others write what it said, row by row by exact key; all in one
-- write transaction, so nothing can be busy. There one snapshot serves all parts; here the order of the parts does that:
-- `forget` before `remember`, what is superseded before the rest (a row released just now was not waiting).

-- name: judge
select e.key as number, a.state, a.tick, a.lane,
       p.action_guid is not null as held, p.interrupted, p.claimed_at
  from json_each(:ended) as e
  left join matrixsched_scheduled_actions a
    on a.shard_id = e.value ->> 0 and a.action_id = e.value ->> 1 and a.action_guid = e.value ->> 2
  left join matrixsched_processing_queue p
    on p.shard_id = e.value ->> 0 and p.action_id = e.value ->> 1 and p.action_guid = e.value ->> 2
   and p.attempt = e.value ->> 3 and p.claimed_by = e.value ->> 4;

-- name: remove
delete from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;

-- name: unblock
-- The new version waited for this attempt, which ended or was given back: its own time counts again.
update matrixsched_processing_queue as p
   set scheduled_at = a.scheduled_at
  from matrixsched_scheduled_actions a
 where a.shard_id = :shard_id and a.action_id = :action_id
   and p.shard_id = :shard_id and p.action_id = :action_id and p.action_guid = a.action_guid
   and p.claimed_by is null and p.scheduled_at > a.scheduled_at;

-- name: again
update matrixsched_processing_queue
   set scheduled_at = :scheduled_at, lane = :lane, interrupted = 0, claimed_by = null, rescheduled_by = :claimed_by,
       rescheduled_at = {now}
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;

-- name: record
update matrixsched_scheduled_actions
   set state = :state, finished_at = iif(:state = 'live', null, {now}),
       scheduled_at = coalesce(:scheduled_at, scheduled_at),
       tick = :tick, tick_at = :tick_at, tick_failures = :tick_failures,
       succeeded = succeeded + (:outcome = 'succeeded'),
       failed = failed + (:outcome in ('failed', 'timed_out')),
       missed = missed + (:outcome = 'missed'),
       deferred = deferred + (:outcome = 'retried' or :outcome = 'cancelled'),
       interrupted = interrupted + :interrupted + (:outcome = 'interrupted'),
       consecutive_failures = case when :outcome = 'succeeded' then 0
                                   when :outcome in ('failed', 'timed_out') then consecutive_failures + 1
                                   else consecutive_failures end,
       last_outcome = :outcome, last_error = :error, last_started_at = :claimed_at, last_ended_at = {now}
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;

-- name: forget
-- All but the newest :keep of an action.
delete from matrixsched_attempt_history
 where shard_id = :shard_id and action_id = :action_id
   and (action_guid, attempt) in (select k.action_guid, k.attempt
                                    from matrixsched_attempt_history k
                                   where k.shard_id = :shard_id and k.action_id = :action_id
                                   order by k.ended_at desc, k.attempt desc
                                   limit -1 offset :keep);

-- name: remember
insert into matrixsched_attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
values (:shard_id, :action_id, :action_guid, :attempt, :tick, :outcome, :error, :claimed_by, :claimed_at, {now})
on conflict do nothing;
