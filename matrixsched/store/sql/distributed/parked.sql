-- parked (distributed). Promise: as that of PostgreSQL, of one shard; asked of one after the other, as `backlog`.
with recursive lanes (lane) as (
    (select p.lane from matrixsched.processing_queue p
      where p.shard_id = cast(:shard_id as integer) and p.lane >= 'handler:' and p.lane < 'handler;' and p.lane >= ''
      order by p.lane limit 1)
    union all
    select (select p.lane from matrixsched.processing_queue p
             where p.shard_id = cast(:shard_id as integer) and p.lane > c.lane and p.lane < 'handler;' and p.lane >= ''
             order by p.lane limit 1)
      from lanes c
     where c.lane is not null
)
select c.lane, count(*) as waiting, min(d.scheduled_at) as oldest_due_at
  from lanes c
 cross join lateral (select p.scheduled_at from matrixsched.processing_queue p
                      where p.shard_id = cast(:shard_id as integer) and p.lane = c.lane and p.lane >= ''
                        and p.scheduled_at <= {now}
                      order by p.scheduled_at limit cast(:count_max as integer)) d
 group by c.lane;
