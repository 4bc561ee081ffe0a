-- backlog (sqlite). Promise: how much is due in the whole installation, and since when; counts stop at :count_max. It
-- reads the heads of the lanes and what it counts, by index, so that it costs what is due and not what is stored. Of the
-- incoming queue, which has no order by due time and is emptied at once, it looks at :count_max rows and no more.
-- It locks nothing. A claimed row counts only once its lease has ended: then it is due again.
-- Open is what stands before no gate and is not parked: nothing but a worker that has room for it is missing.
-- Differs from postgresql/backlog.sql: joins instead of lateral ones, and min() that would not pass over nulls.
with recursive lanes (shard_id, lane) as (
    select l.shard_id, (select p.lane from matrixsched_processing_queue p
                         where p.shard_id = l.shard_id
                         order by p.lane limit 1)
      from matrixsched_shard_locks l
    union all
    select c.shard_id, (select p.lane from matrixsched_processing_queue p
                         where p.shard_id = c.shard_id and p.lane > c.lane
                         order by p.lane limit 1)
      from lanes c
     where c.lane is not null
),
heads as (
    select c.lane,
           (select p.scheduled_at from matrixsched_processing_queue p
             where p.shard_id = c.shard_id and p.lane = c.lane and p.scheduled_at <= {now}
             order by p.scheduled_at limit 1) as scheduled_at
      from lanes c
),
due as (
    select p.scheduled_at
      from lanes c
     cross join matrixsched_processing_queue p
        on p.shard_id = c.shard_id and p.lane = c.lane and p.scheduled_at <= {now}
     limit :count_max
),
incoming as materialized (
    select i.scheduled_at
      from matrixsched_shard_locks l
     cross join matrixsched_incoming_queue i on i.shard_id = l.shard_id
     limit :count_max
)
select {now} as now,
       min((select count(*) from due) + (select count(*) from incoming where scheduled_at <= {now}),
           :count_max) as due,
       (select min(scheduled_at)
          from (select scheduled_at from heads
                union all
                select scheduled_at from incoming where scheduled_at <= {now})) as oldest_due_at,
       (select min(scheduled_at)
          from (select scheduled_at from heads
                 where lane not like 'limit|%' and lane not like 'quota|%' and lane not like 'handler:%'
                union all
                select scheduled_at from incoming where scheduled_at <= {now})) as oldest_open_at,
       (select min(scheduled_at) from heads where lane like 'handler:%') as oldest_parked_at;
