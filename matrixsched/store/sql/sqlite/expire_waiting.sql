-- expire_waiting (sqlite). Promise: of the rows that wait past their expiry, in whatever lane, the first :limit are gone and
-- their actions recorded as expired, both or neither, without a handler. Never while the lease of an attempt runs; past
-- its end the attempt counts as interrupted, as for a claim. Dead rows among them go, lest they hide the others.
-- Differs from postgresql/expire_waiting.sql: `look` reads, the others write what it said, row by row by exact key; all in
-- one write transaction, so that nothing needs a lock.

-- name: look
select p.shard_id, p.action_id, p.action_guid, p.attempt, p.claimed_by, p.claimed_at, a.tick,
       a.template,
       p.interrupted + (p.claimed_by is not null) as interrupted,
       case when a.action_guid is null then 'dead' else 'expired' end as verdict
  from matrixsched_processing_queue p
  left join matrixsched_scheduled_actions a
    on a.shard_id = p.shard_id and a.action_id = p.action_id and a.action_guid = p.action_guid and a.state = 'live'
 where p.expires_at <= {now} and (p.claimed_by is null or p.scheduled_at <= {now})
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
