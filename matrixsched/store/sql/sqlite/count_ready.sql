-- count_ready (sqlite). Promise: how many tasks of each of these queues are ready, and since when the oldest is. Counting stops at
-- :count_max of a queue. It reads what it counts, by index, and nothing of what is delayed, taken or dead.
-- Differs from postgresql/count_ready.sql: json_each instead of an array; no lateral joins, so the oldest is asked for alone.
select q.value as queue, {now} as now,
       (select count(*) from (select t.id from matrixsched_queue_tasks t
                               where t.queue = q.value and t.due_at <= {now}
                               limit :count_max)) as ready,
       (select min(t.due_at) from matrixsched_queue_tasks t
         where t.queue = q.value and t.due_at <= {now}) as oldest_ready_at
  from json_each(:queues) as q;
