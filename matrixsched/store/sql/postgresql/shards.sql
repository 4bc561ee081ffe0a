-- shards (postgresql). Promise: every shard lock with its queues; counts stop at :count_max, so that millions cost nothing.
select {now} as now, l.shard_id, l.locked, l.last_lock_guid, l.last_locked_by, l.last_processing_start_at,
       l.last_heartbeat_at,
       (select count(*) from (select from matrixsched.incoming_queue i
                               where i.shard_id = l.shard_id order by i.created_at
                               limit cast(:count_max as integer)) c) as incoming,
       (select count(*) from (select from matrixsched.processing_queue p
                               where p.shard_id = l.shard_id order by p.action_id
                               limit cast(:count_max as integer)) c) as processing,
       (select p.scheduled_at from matrixsched.processing_queue p
         where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now}
         order by p.scheduled_at limit 1) as oldest_due_at
  from matrixsched.shard_locks l
 order by l.shard_id;
