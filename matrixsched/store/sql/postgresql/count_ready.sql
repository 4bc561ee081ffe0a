-- count_ready (postgresql). Promise: how many tasks of each of these queues are ready, and since when the oldest is. Counting stops
-- at :count_max of a queue. It reads what it counts, by index, and nothing of what is delayed, taken or dead. It locks nothing.
select q.queue, r.ready, r.oldest_ready_at, {now} as now
  from unnest(cast(:queues as integer[])) as q (queue)
 cross join lateral (select count(*) as ready, min(f.due_at) as oldest_ready_at
                       from (select t.due_at from matrixsched.queue_tasks t
                              where t.queue = q.queue and t.due_at <= {now}
                              order by t.due_at, t.id
                              limit (select cast(:count_max as integer))) f) r;
