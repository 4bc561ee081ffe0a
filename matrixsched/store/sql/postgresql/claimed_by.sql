-- claimed_by (postgresql). Promise: the attempts a sync iteration holds in a shard, whether or not its worker heard of them:
-- asked after the answer to a claim was lost.
select {now} as now, p.action_id, p.action_guid, p.attempt, p.claimed_at, p.claimed_at as due_at, a.version, a.handler,
       a.payload, a.terms, a.priority, a.template, a.zone, a.expires_at, a.tick, a.tick_at, a.tick_failures, p.interrupted
  from matrixsched.processing_queue p
  join matrixsched.scheduled_actions a
    on a.shard_id = {p.shard_id} and a.action_id = p.action_id and a.action_guid = p.action_guid and a.state = 'live'
 where p.shard_id = cast(:shard_id as integer) and p.lane = any (cast(:lanes as text[])) and p.lane >= ''
   and p.scheduled_at > {now} and p.scheduled_at <= {now} + cast(:attempt_lease as interval)
   and p.claimed_by = cast(:sync_guid as uuid);
