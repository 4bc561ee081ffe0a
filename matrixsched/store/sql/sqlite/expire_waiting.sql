-- expire_waiting (sqlite). Promise: of the rows that wait past their expiry, in whatever lane, the first :limit are gone and
-- their actions recorded as expired, both or neither, without a handler. Never while an attempt runs, which ends by itself.
-- Dead rows among them go, lest they hide the others.
-- Differs from postgresql/expire_waiting.sql: `look` reads, the others write what it said, row by row by exact key; all in
-- one write transaction, so that nothing needs a lock.

-- name: look
select p.shard_id, p.action_id, p.action_guid, p.interrupted,
       exists (select 1 from matrixsched_scheduled_actions a
                where a.shard_id = p.shard_id and a.action_id = p.action_id and a.action_guid = p.action_guid
                  and a.state = 'live') as live
  from matrixsched_processing_queue p
 where p.expires_at <= {now} and p.claimed_by is null
 order by p.expires_at
 limit :limit;

-- name: delete
delete from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;

-- name: record
update matrixsched_scheduled_actions
   set state = 'expired', finished_at = {now}, interrupted = interrupted + :interrupted,
       last_outcome = 'expired', last_error = :error, last_ended_at = {now}
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;
