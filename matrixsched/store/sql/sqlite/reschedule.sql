-- reschedule (sqlite). Promise: a new guid and a new next time for a live action (with :revive also for a finished one),
-- once per request and unless it was called off; spec and counters stay. Interruptions counted in the queue row are taken
-- over, for that row is dead from here on. The new guid is among the requests, too (carried_out).
-- With :seen_state only if the action is as it was seen, and no attempt at it is under way.
-- Differs from postgresql/reschedule.sql: several statements in one transaction; no NOTIFY.

-- name: request
insert into matrixsched_requests (request_guid, created_at)
select :request_guid, {now}
  from matrixsched_scheduled_actions s
 where s.shard_id = :shard_id and s.action_id = :action_id
   and (s.state = 'live' or :revive)
   and (:expected_guid is null or s.action_guid = :expected_guid)
   and (:seen_state is null
        or s.state = :seen_state and s.last_ended_at is :seen_ended_at
           and not exists (select 1 from matrixsched_processing_queue p
                            where p.shard_id = s.shard_id and p.action_id = s.action_id
                              and p.claimed_by is not null and p.scheduled_at > {now}))
   and not exists (select 1 from matrixsched_requests r where r.request_guid = :action_guid)
on conflict do nothing
returning request_guid;

-- name: write
update matrixsched_scheduled_actions as s
   set action_guid = :action_guid, version = max(s.version + 1, {now}), revision = s.revision + 1,
       state = 'live', finished_at = null,
       tick_failures = case when s.state = 'live' then s.tick_failures else 0 end,
       expires_at = case when s.state = 'live' then s.expires_at end,
       interrupted = s.interrupted + coalesce(
           (select p.interrupted from matrixsched_processing_queue p
             where p.shard_id = s.shard_id and p.action_id = s.action_id and p.action_guid = s.action_guid), 0),
       scheduled_at = :scheduled_at, tick_at = :scheduled_at, updated_at = {now}
 where s.shard_id = :shard_id and s.action_id = :action_id
returning action_id, action_guid,
          exists (select 1 from matrixsched_processing_queue p
                   where p.shard_id = :shard_id and p.action_id = :action_id
                     and p.claimed_by is not null and p.scheduled_at > {now}) as running;

-- name: queue
insert into matrixsched_incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select shard_id, {now}, action_id, action_guid, scheduled_at, lane, expires_at
  from matrixsched_scheduled_actions
 where shard_id = :shard_id and action_id = :action_id;
