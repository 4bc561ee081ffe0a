-- claimed_by (sqlite). Promise: the attempts a sync iteration holds in a shard, whether or not its worker heard of them:
-- asked after the answer to a claim was lost.
-- Differs from postgresql/claimed_by.sql: json_each instead of an array.
select p.action_id, p.action_guid, p.attempt, p.claimed_at, p.claimed_at as due_at, a.version, a.handler, a.payload,
       a.terms, a.priority, a.template, a.zone, a.expires_at, a.tick, a.tick_at, a.tick_failures, p.interrupted
  from json_each(:lanes) as s
 cross join matrixsched_processing_queue p
  join matrixsched_scheduled_actions a
    on a.shard_id = p.shard_id and a.action_id = p.action_id and a.action_guid = p.action_guid and a.state = 'live'
 where p.shard_id = :shard_id and p.lane = s.value
   and p.scheduled_at > {now} and p.scheduled_at <= {now} + :attempt_lease
   and p.claimed_by = :sync_guid;
