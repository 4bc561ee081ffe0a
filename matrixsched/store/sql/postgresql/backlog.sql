-- backlog (postgresql). Promise: how much is due in the whole installation, and since when; counts stop at :count_max. It
-- reads the heads of the lanes and what it counts, by index, so that it costs what is due and not what is stored. Of the
-- incoming queue, which has no order by due time and is emptied at once, it looks at :count_max rows and no more.
-- It locks nothing. A claimed row counts only once its lease has ended: then it is due again.
-- Open is what stands before no gate and is not parked: nothing but a worker that has room for it is missing.
with recursive lanes (shard_id, lane) as (
    select l.shard_id, (select p.lane from matrixsched.processing_queue p
                         where p.shard_id = l.shard_id and p.lane >= ''
                         order by p.lane limit 1)
      from matrixsched.shard_locks l
    union all
    select c.shard_id, (select p.lane from matrixsched.processing_queue p
                         where p.shard_id = c.shard_id and p.lane > c.lane and p.lane >= ''
                         order by p.lane limit 1)
      from lanes c
     where c.lane is not null
),
heads as (
    select c.lane, h.scheduled_at
      from lanes c
     cross join lateral (select p.scheduled_at from matrixsched.processing_queue p
                          where p.shard_id = c.shard_id and p.lane = c.lane and p.lane >= '' and p.scheduled_at <= {now}
                          order by p.scheduled_at limit 1) h
),
due as (
    select d.scheduled_at
      from lanes c
     cross join lateral (select p.scheduled_at from matrixsched.processing_queue p
                          where p.shard_id = c.shard_id and p.lane = c.lane and p.lane >= '' and p.scheduled_at <= {now}
                          order by p.scheduled_at limit cast(:count_max as integer)) d
     limit cast(:count_max as integer)
),
incoming as materialized (
    select n.scheduled_at
      from matrixsched.shard_locks l
     cross join lateral (select i.scheduled_at from matrixsched.incoming_queue i
                          where i.shard_id = l.shard_id
                          order by i.created_at limit cast(:count_max as integer)) n
     limit cast(:count_max as integer)
)
select {now} as now,
       least((select count(*) from due) + (select count(*) from incoming where scheduled_at <= {now}),
             cast(:count_max as integer)) as due,
       least((select min(scheduled_at) from heads),
             (select min(scheduled_at) from incoming where scheduled_at <= {now})) as oldest_due_at,
       least((select min(scheduled_at) from heads where not lane like any (array['limit|%', 'quota|%', 'handler:%'])),
             (select min(scheduled_at) from incoming where scheduled_at <= {now})) as oldest_open_at,
       (select min(scheduled_at) from heads where lane like 'handler:%') as oldest_parked_at;
