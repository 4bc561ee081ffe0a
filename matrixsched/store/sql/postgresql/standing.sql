-- standing (postgresql). Promise: an action with its row in the processing queue, or whether it is in the incoming queue (where it
-- is found by its key, for it is as old as its action), the lock of its shard, the lease of an attempt at another version of it,
-- and the last sign of life of any worker that runs actions (who is there for queues alone tidies, too); all in one snapshot.
-- Of a gated lane it is counted how many rows were due before it, up to :count_max. It locks nothing.
select {now} as now, a.*, coalesce(p.interrupted, 0) as interrupted_uncounted,
       exists (select from matrixsched.processing_queue r
                where r.shard_id = a.shard_id and r.action_id = a.action_id
                  and r.claimed_by is not null and r.scheduled_at > {now}) as running,
       p.lane as row_lane, p.scheduled_at as row_due_at, p.claimed_at as row_claimed_at,
       p.claimed_by is not null as row_claimed,
       exists (select from matrixsched.incoming_queue i
                where i.shard_id = a.shard_id and i.created_at = a.updated_at and i.action_id = a.action_id
                  and i.action_guid = a.action_guid) as is_new,
       (select count(*) from (select from matrixsched.processing_queue b
                               where b.lane = p.lane and b.lane >= 'limit|' and b.lane < 'quota}'
                                 and b.scheduled_at < p.scheduled_at
                               limit cast(:count_max as integer)) w) as row_before,
       (select max(r.scheduled_at) from matrixsched.processing_queue r
         where r.shard_id = a.shard_id and r.action_id = a.action_id and r.action_guid <> a.action_guid
           and r.claimed_by is not null and r.scheduled_at > {now}) as blocked_until,
       l.locked, l.last_locked_by, l.last_heartbeat_at,
       nullif(greatest((select max(least(h.last_heartbeat_at, {now})) from matrixsched.shard_locks h),
                       (select max(greatest(c.done_at, least(c.held_until, {now}))) from matrixsched.chores c
                         where c.name not in ('tidy', 'queues'))),
              timestamptz 'epoch') as worker_seen_at
  from matrixsched.scheduled_actions a
  join matrixsched.shard_locks l on l.shard_id = a.shard_id
  left join matrixsched.processing_queue p
    on p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid
 where a.shard_id = cast(:shard_id as integer) and a.action_id = cast(:action_id as text);
