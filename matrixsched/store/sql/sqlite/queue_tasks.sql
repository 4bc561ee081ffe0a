-- queue_tasks (sqlite). Promise: tasks of queues are shown, and those that nobody has are hastened or purged, a batch at a
-- time. What it reads is by index and no more than it answers with, but for tasks that are taken, which it passes over.
-- Differs from postgresql/queue_tasks.sql: json_each instead of arrays; no row needs a lock; the sweep's writing
-- is a statement of its own.

-- name: peek
select t.*, {now} as now
  from matrixsched_queue_tasks t
 where t.queue = :queue
 order by t.due_at, t.id
 limit :limit;

-- name: delayed
select t.id
  from matrixsched_queue_tasks t
 where t.queue = :queue and t.due_at > {now} and t.receipt is null
 order by t.due_at, t.id
 limit :limit;

-- name: hasten
-- Of these tasks those that are delayed are ready.
update matrixsched_queue_tasks
   set start_at = {now}, due_at = {now}
 where id in (select t.id
                from json_each(:ids) as g
               cross join matrixsched_queue_tasks t -- in this order: each is found by its key
               where t.id = g.value and t.queue = :queue and t.due_at > {now} and t.receipt is null)
returning id;

-- name: waiting
select t.id
  from matrixsched_queue_tasks t
 where t.queue = :queue and (t.receipt is null or t.due_at <= {now})
 order by t.due_at, t.id
 limit :limit;

-- name: purge
-- Of these tasks those are gone that nobody has.
delete from matrixsched_queue_tasks
 where id in (select t.id
                from json_each(:ids) as g
               cross join matrixsched_queue_tasks t -- in this order: each is found by its key
               where t.id = g.value and t.queue = :queue and (t.receipt is null or t.due_at <= {now}))
returning id;

-- name: sweep
-- The next :limit tasks, by id, and which of them are taken for longer than anybody may ask for (:reach from now): that was
-- before the clock was set back.
select t.id, t.receipt is not null and t.due_at > {now} + :reach as stranded
  from matrixsched_queue_tasks t
 where t.id > :after
 order by t.id
 limit :limit;

-- name: shorten
update matrixsched_queue_tasks set due_at = {now} + :reach where id in (select value from json_each(:ids));
