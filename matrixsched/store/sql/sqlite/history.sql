-- history (sqlite). Promise: the kept attempts of an action that did not simply succeed, newest first.
-- Differs from postgresql/history.sql: only in the casts.
select action_guid, attempt, tick, outcome, error, started_at, ended_at
  from matrixsched_attempt_history
 where shard_id = :shard_id and action_id = :action_id
 order by ended_at desc, attempt desc;
