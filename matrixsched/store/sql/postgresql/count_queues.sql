-- count_queues (postgresql). Promise: how many tasks of each queue are ready, taken, delayed and dead, and since when the
-- oldest is ready; of every queue that has tasks, dead letters or settings, or is known. Counting stops at :count_max of
-- those that are ready, of those that are not, the next due first, and of the dead. It goes from queue to queue by index and
-- reads what it counts. It locks nothing.
with recursive filled (queue) as (
    (select t.queue from matrixsched.queue_tasks t order by t.queue limit 1)
    union all
    select n.queue
      from filled f
     cross join lateral (select t.queue from matrixsched.queue_tasks t
                          where t.queue > f.queue order by t.queue limit 1) n
),
buried (queue) as (
    (select d.queue from matrixsched.queue_dead_letters d order by d.queue limit 1)
    union all
    select n.queue
      from buried b
     cross join lateral (select d.queue from matrixsched.queue_dead_letters d
                          where d.queue > b.queue order by d.queue limit 1) n
),
queues as materialized (
    select queue from filled
    union
    select queue from buried
    union
    select queue from matrixsched.known_queues
    union
    select queue from matrixsched.queue_settings
)
select q.queue, {now} as now, r.ready, r.oldest_ready_at, o.taken, o.delayed, d.dead
  from (select) as always -- one row comes back in any case
  left join queues q on true
 cross join lateral (select count(*) as ready, min(f.due_at) as oldest_ready_at
                       from (select t.due_at from matrixsched.queue_tasks t
                              where t.queue = q.queue and t.due_at <= {now}
                              order by t.due_at, t.id
                              limit (select cast(:count_max as integer))) f) r
 cross join lateral (select count(f.receipt) as taken, count(*) - count(f.receipt) as delayed
                       from (select t.receipt from matrixsched.queue_tasks t
                              where t.queue = q.queue and t.due_at > {now}
                              order by t.due_at, t.id
                              limit (select cast(:count_max as integer))) f) o
 cross join lateral (select count(*) as dead
                       from (select from matrixsched.queue_dead_letters d
                              where d.queue = q.queue
                              order by d.id
                              limit (select cast(:count_max as integer))) f) d
 order by q.queue;
