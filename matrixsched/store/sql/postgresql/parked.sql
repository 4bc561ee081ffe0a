-- parked (postgresql). Promise: what is due in lanes of handlers, over all shards; in each shard :count_max rows of each lane
-- are counted. It reads the heads of the lanes and what it counts, by index. It locks nothing.
with recursive lanes (shard_id, lane) as (
    select l.shard_id, (select p.lane from matrixsched.processing_queue p
                         where p.shard_id = l.shard_id and p.lane >= 'handler:' and p.lane < 'handler;' and p.lane >= ''
                         order by p.lane limit 1)
      from matrixsched.shard_locks l
    union all
    select c.shard_id, (select p.lane from matrixsched.processing_queue p
                         where p.shard_id = c.shard_id and p.lane > c.lane and p.lane < 'handler;' and p.lane >= ''
                         order by p.lane limit 1)
      from lanes c
     where c.lane is not null
)
select c.lane, count(*) as waiting, min(d.scheduled_at) as oldest_due_at
  from lanes c
 cross join lateral (select p.scheduled_at from matrixsched.processing_queue p
                      where p.shard_id = c.shard_id and p.lane = c.lane and p.lane >= '' and p.scheduled_at <= {now}
                      order by p.scheduled_at limit cast(:count_max as integer)) d
 group by c.lane
 order by c.lane;
