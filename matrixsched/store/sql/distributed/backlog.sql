-- backlog (distributed). Promise: as that of PostgreSQL. First which shards have anything of it, in one look over all of them:
-- most often none. Those are asked one after the other, since lanes are skipped through by recursion, which Citus carries out
-- in one shard alone; and each counts only what those before it have left: :due_max rows that are due, and of those that are
-- new it looks at :new_max.

-- name: look
-- With new rows, with due ones in the lanes of what passes no gate, or with any in the others.
with busy as materialized (
    select l.shard_id
      from matrixsched.shard_locks l
     where coalesce(
               (select true from matrixsched.incoming_queue i
                 where i.shard_id = l.shard_id
                 order by i.created_at limit 1),
               (select true from matrixsched.processing_queue p
                 where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now}
                 order by p.scheduled_at limit 1),
               (select true from matrixsched.processing_queue p
                 where p.shard_id = l.shard_id and p.lane = 'coming' and p.scheduled_at <= {now}
                 order by p.scheduled_at limit 1),
               (select true from matrixsched.processing_queue p
                 where p.shard_id = l.shard_id and p.lane = 'event' and p.scheduled_at <= {now}
                 order by p.scheduled_at limit 1),
               (select true from matrixsched.processing_queue p
                 where p.shard_id = l.shard_id and p.lane > 'event'
                 order by p.lane limit 1),
               false)
)
select {now} as now, array(select shard_id from busy order by shard_id) as shards;

-- name: count
with recursive lanes (lane) as (
    (select p.lane from matrixsched.processing_queue p
      where p.shard_id = cast(:shard_id as integer) and p.lane >= ''
      order by p.lane limit 1)
    union all
    select (select p.lane from matrixsched.processing_queue p
             where p.shard_id = cast(:shard_id as integer) and p.lane > c.lane and p.lane >= ''
             order by p.lane limit 1)
      from lanes c
     where c.lane is not null
),
heads as (
    select c.lane, h.scheduled_at
      from lanes c
     cross join lateral (select p.scheduled_at from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.lane = c.lane and p.lane >= ''
                            and p.scheduled_at <= {now}
                          order by p.scheduled_at limit 1) h
),
due as (
    select d.scheduled_at
      from lanes c
     cross join lateral (select p.scheduled_at from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.lane = c.lane and p.lane >= ''
                            and p.scheduled_at <= {now}
                          order by p.scheduled_at limit cast(:due_max as integer)) d
     limit cast(:due_max as integer)
),
incoming as materialized (
    select i.scheduled_at
      from matrixsched.incoming_queue i
     where i.shard_id = cast(:shard_id as integer)
     order by i.created_at
     limit cast(:new_max as integer)
)
select {now} as now,
       (select count(*) from due) as due, (select count(*) from incoming) as looked_at,
       (select count(*) from incoming where scheduled_at <= {now}) as due_of_new,
       least((select min(scheduled_at) from heads),
             (select min(scheduled_at) from incoming where scheduled_at <= {now})) as oldest_due_at,
       least((select min(scheduled_at) from heads where not lane like any (array['limit|%', 'quota|%', 'handler:%'])),
             (select min(scheduled_at) from incoming where scheduled_at <= {now})) as oldest_open_at,
       (select min(scheduled_at) from heads where lane like 'handler:%') as oldest_parked_at;
