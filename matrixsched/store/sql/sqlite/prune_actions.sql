-- prune_actions (sqlite). Promise: of the actions that ended in :state, deletes only the old ones, oldest first, with
-- their history.
-- Differs from postgresql/prune_actions.sql: choosing and deleting are one write transaction, so that no row needs a lock.

-- name: choose
select shard_id, action_id, action_guid
  from matrixsched_scheduled_actions
 where state = :state and finished_at < {now} - :keep
 order by finished_at
 limit :limit;

-- name: history
delete from matrixsched_attempt_history where shard_id = :shard_id and action_id = :action_id;

-- name: actions
delete from matrixsched_scheduled_actions
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;
