-- history (postgresql). Promise: the kept attempts of an action that did not simply succeed, newest first.
select action_guid, attempt, tick, outcome, error, started_at, ended_at
  from matrixsched.attempt_history
 where shard_id = cast(:shard_id as integer) and action_id = cast(:action_id as text)
 order by ended_at desc, attempt desc;
