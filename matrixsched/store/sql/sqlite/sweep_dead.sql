-- sweep_dead (sqlite). Promise: of the next :limit processing rows in key order, deletes those whose action has another
-- guid or is finished, except attempts under way. A guid never comes back, so dead is dead. Without this, rows of a
-- far-future action that is moved often would stay for years.
-- Differs from postgresql/sweep_dead.sql: looking and deleting are two statements of one write transaction.

-- name: look
select p.shard_id, p.action_id, p.action_guid,
       (p.claimed_by is null or p.scheduled_at <= {now})
       and not exists (select 1 from matrixsched_scheduled_actions a
                        where a.shard_id = p.shard_id and a.action_id = p.action_id
                          and a.action_guid = p.action_guid and a.state = 'live') as dead
  from matrixsched_processing_queue p
 where (p.shard_id, p.action_id, p.action_guid) > (:after_shard, :after_id, :after_guid)
 order by p.shard_id, p.action_id, p.action_guid
 limit :limit;

-- name: delete
delete from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;
