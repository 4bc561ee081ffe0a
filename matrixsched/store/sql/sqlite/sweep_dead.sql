-- sweep_dead (sqlite). Promise: of the next :limit processing rows in key order, deletes those whose action has another
-- guid or is finished, except attempts under way. A guid never comes back, so dead is dead. Without this, rows of
-- far-future actions that were cancelled would stay for years.
-- A lease that ends later than any lease can (:reach from now) was written before the clock was set back: it is cut to
-- :reach, which is no shorter than its holder asked for, so that nobody waits as long as the clock went back.
-- Differs from postgresql/sweep_dead.sql: looking and writing are statements of one write transaction.

-- name: look
select p.shard_id, p.action_id, p.action_guid,
       p.claimed_by is not null and p.scheduled_at > {now} + :reach as stranded,
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

-- name: shorten
update matrixsched_processing_queue set scheduled_at = :lease_end
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;
