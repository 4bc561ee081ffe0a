-- standing (sqlite). Promise: an action with its row in the processing queue, or whether it is in the incoming queue (where it
-- is found by its key, for it is as old as its action), the lock of its shard, the lease of an attempt at another version of it,
-- and the last sign of life of any worker that runs actions (who is there for queues alone tidies, too); all in one snapshot.
-- Of a gated lane it is counted how many rows were due before it, up to :count_max.
-- Differs from postgresql/standing.sql: min() and max() of several values, which would not pass over nulls.
select {now} as now, a.*, coalesce(p.interrupted, 0) as interrupted_uncounted,
       exists (select 1 from matrixsched_processing_queue r
                where r.shard_id = a.shard_id and r.action_id = a.action_id
                  and r.claimed_by is not null and r.scheduled_at > {now}) as running,
       p.lane as row_lane, p.scheduled_at as row_due_at, p.claimed_at as row_claimed_at,
       p.claimed_by is not null as row_claimed,
       exists (select 1 from matrixsched_incoming_queue i
                where i.shard_id = a.shard_id and i.created_at = a.updated_at and i.action_id = a.action_id
                  and i.action_guid = a.action_guid) as is_new,
       (select count(*) from (select 1 from matrixsched_processing_queue b
                               where b.lane = p.lane and b.lane >= 'limit|' and b.lane < 'quota}'
                                 and b.scheduled_at < p.scheduled_at
                               limit :count_max)) as row_before,
       (select max(r.scheduled_at) from matrixsched_processing_queue r
         where r.shard_id = a.shard_id and r.action_id = a.action_id and r.action_guid <> a.action_guid
           and r.claimed_by is not null and r.scheduled_at > {now}) as blocked_until,
       l.locked, l.last_locked_by, l.last_heartbeat_at,
       nullif(max((select max(min(h.last_heartbeat_at, {now})) from matrixsched_shard_locks h),
                  (select max(max(coalesce(c.done_at, 0), min(c.held_until, {now}))) from matrixsched_chores c
                         where c.name not in ('tidy', 'queues'))),
              0) as worker_seen_at
  from matrixsched_scheduled_actions a
  join matrixsched_shard_locks l on l.shard_id = a.shard_id
  left join matrixsched_processing_queue p
    on p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid
 where a.shard_id = :shard_id and a.action_id = :action_id;
