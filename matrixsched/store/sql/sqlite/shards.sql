-- shards (sqlite). Promise: every shard lock with its queues; counts stop at :count_max, so that millions cost nothing.
-- Differs from postgresql/shards.sql: only in the casts.
select {now} as now, l.shard_id, l.locked, l.last_lock_guid, l.last_locked_by, l.last_processing_start_at,
       l.last_heartbeat_at,
       (select count(*) from (select 1 from matrixsched_incoming_queue i
                               where i.shard_id = l.shard_id limit :count_max)) as incoming,
       (select count(*) from (select 1 from matrixsched_processing_queue p
                               where p.shard_id = l.shard_id limit :count_max)) as processing,
       (select p.scheduled_at from matrixsched_processing_queue p
         where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now}
         order by p.scheduled_at limit 1) as oldest_due_at
  from matrixsched_shard_locks l
 order by l.shard_id;
