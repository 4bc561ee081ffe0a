-- replace_expected (sqlite). Promise: as schedule, but only over an action that is still at the guid the caller read.
-- The new guid is among the requests, too (carried_out).
-- Differs from postgresql/replace_expected.sql: several statements in one transaction; no NOTIFY.

-- name: request
insert into matrixsched_requests (request_guid, created_at)
select :request_guid, {now}
  from matrixsched_scheduled_actions
 where shard_id = :shard_id and action_id = :action_id and action_guid = :expected_guid
on conflict do nothing
returning request_guid;

-- name: write
update matrixsched_scheduled_actions
   set action_guid = :action_guid, version = max(version + 1, {now}), revision = revision + 1, handler = :handler,
       payload = :payload, terms = :terms, lane = :lane, priority = :priority, template = :template, zone = :zone,
       expires_at = :expires_at, state = 'live', scheduled_at = :scheduled_at, tick = 0, tick_at = :tick_at,
       tick_failures = 0, succeeded = 0, failed = 0, interrupted = 0, missed = 0, deferred = 0, consecutive_failures = 0,
       last_outcome = null, last_error = null, last_started_at = null, last_ended_at = null, created_at = {now},
       updated_at = {now}, finished_at = null
 where shard_id = :shard_id and action_id = :action_id
returning action_id, action_guid, revision,
          exists (select 1 from matrixsched_processing_queue p
                   where p.shard_id = :shard_id and p.action_id = :action_id
                     and p.claimed_by is not null and p.scheduled_at > {now}) as running;

-- name: queue
insert into matrixsched_incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select shard_id, {now}, action_id, action_guid, scheduled_at, lane, expires_at
  from matrixsched_scheduled_actions
 where shard_id = :shard_id and action_id = :action_id;
