-- dead_letters (sqlite). Promise: what was set aside is shown page by page, comes back as if it were new, or is deleted for
-- good, a batch at a time.
-- Differs from postgresql/dead_letters.sql: json_each instead of arrays; no row needs a lock; what comes back is deleted
-- among the dead letters by `purge`, in the same transaction.

-- name: page
select d.*
  from matrixsched_queue_dead_letters d
 where d.queue = :queue and d.id > :after
 order by d.id
 limit :limit;

-- name: ids
select d.id
  from matrixsched_queue_dead_letters d
 where d.queue = :queue
 order by d.id
 limit :limit;

-- name: times
select d.id, d.died_at
  from matrixsched_queue_dead_letters d
 where d.queue = :queue and d.id > :after
 order by d.id
 limit :limit;

-- name: redrive
insert into matrixsched_queue_tasks (id, queue, attempts, created_at, start_at, due_at, data)
select d.id, d.queue, 0, d.created_at, {now}, {now}, d.data
  from (select distinct value as id from json_each(:ids)) as g
 cross join matrixsched_queue_dead_letters d -- in this order: each is found by its key
 where d.queue = :queue and d.id = g.id
returning id;

-- name: purge
delete from matrixsched_queue_dead_letters
 where queue = :queue and id in (select value from json_each(:ids))
returning id;
