-- count_queues (sqlite). Promise: how many tasks of each queue are ready, taken, delayed and dead, and since when the oldest
-- is ready; of every queue that has tasks, dead letters or settings, or is known. Counting stops at :count_max of those
-- that are ready, of those that are not, the next due first, and of the dead. It goes from queue to queue by index and reads
-- what it counts.
-- Differs from postgresql/count_queues.sql: SQLite has no lateral joins, so the queues are listed by one statement and each
-- is counted by another.

-- name: queues
with recursive filled (queue) as (
    select min(queue) from matrixsched_queue_tasks
    union all
    select (select min(t.queue) from matrixsched_queue_tasks t where t.queue > f.queue)
      from filled f
     where f.queue is not null
),
buried (queue) as (
    select min(queue) from matrixsched_queue_dead_letters
    union all
    select (select min(d.queue) from matrixsched_queue_dead_letters d where d.queue > b.queue)
      from buried b
     where b.queue is not null
)
select queue from filled where queue is not null
union
select queue from buried where queue is not null
union
select queue from matrixsched_known_queues
union
select queue from matrixsched_queue_settings;

-- name: count
select r.ready, r.oldest_ready_at, o.taken, o.delayed, b.dead
  from (select count(*) as ready, min(f.due_at) as oldest_ready_at
          from (select t.due_at from matrixsched_queue_tasks t
                 where t.queue = :queue and t.due_at <= {now}
                 order by t.due_at, t.id
                 limit :count_max) f) r
 cross join (select count(f.receipt) as taken, count(*) - count(f.receipt) as delayed
               from (select t.receipt from matrixsched_queue_tasks t
                      where t.queue = :queue and t.due_at > {now}
                      order by t.due_at, t.id
                      limit :count_max) f) o
 cross join (select count(*) as dead
               from (select 1 from matrixsched_queue_dead_letters where queue = :queue limit :count_max)) b;
