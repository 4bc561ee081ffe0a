-- parked (sqlite). Promise: what is due in lanes of handlers, over all shards; in each shard :count_max rows of each lane are
-- counted. It reads the heads of the lanes and what it counts, by index. It locks nothing.
-- Differs from postgresql/parked.sql: subqueries for each lane instead of a lateral join.
with recursive lanes (shard_id, lane) as (
    select l.shard_id, (select p.lane from matrixsched_processing_queue p
                         where p.shard_id = l.shard_id and p.lane >= 'handler:' and p.lane < 'handler;'
                         order by p.lane limit 1)
      from matrixsched_shard_locks l
    union all
    select c.shard_id, (select p.lane from matrixsched_processing_queue p
                         where p.shard_id = c.shard_id and p.lane > c.lane and p.lane < 'handler;'
                         order by p.lane limit 1)
      from lanes c
     where c.lane is not null
),
heads as materialized (
    select c.lane,
           (select count(*) from (select 1 from matrixsched_processing_queue p
                                   where p.shard_id = c.shard_id and p.lane = c.lane and p.scheduled_at <= {now}
                                   limit :count_max)) as waiting,
           (select p.scheduled_at from matrixsched_processing_queue p
             where p.shard_id = c.shard_id and p.lane = c.lane
             order by p.scheduled_at limit 1) as oldest_due_at
      from lanes c
     where c.lane is not null
)
select lane, sum(waiting) as waiting, min(oldest_due_at) as oldest_due_at
  from heads
 where waiting > 0
 group by lane
 order by lane;
