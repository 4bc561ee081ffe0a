-- cancel (sqlite). Promise: a live action is finished as cancelled, once per request and unless it was called off; its queue
-- rows are dead from here on, so none of them starts again. The new guid is among the requests, too (carried_out).
-- Differs from postgresql/cancel.sql: two statements in one transaction.

-- name: request
insert into matrixsched_requests (request_guid, created_at)
select :request_guid, {now}
  from matrixsched_scheduled_actions s
 where s.shard_id = :shard_id and s.action_id = :action_id
   and s.state = 'live'
   and (:expected_guid is null or s.action_guid = :expected_guid)
   and not exists (select 1 from matrixsched_requests r where r.request_guid = :action_guid)
on conflict do nothing
returning request_guid;

-- name: write
update matrixsched_scheduled_actions as s
   set action_guid = :action_guid, version = max(s.version + 1, {now}), revision = s.revision + 1,
       state = 'cancelled', finished_at = {now}, updated_at = {now},
       interrupted = s.interrupted + coalesce(
           (select p.interrupted from matrixsched_processing_queue p
             where p.shard_id = s.shard_id and p.action_id = s.action_id and p.action_guid = s.action_guid), 0)
 where s.shard_id = :shard_id and s.action_id = :action_id
returning action_id, action_guid,
          exists (select 1 from matrixsched_processing_queue p
                   where p.shard_id = :shard_id and p.action_id = :action_id
                     and p.claimed_by is not null and p.scheduled_at > {now}) as running;
