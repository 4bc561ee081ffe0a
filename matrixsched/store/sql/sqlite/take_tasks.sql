-- take_tasks (sqlite). Promise: hands out up to :count tasks of a queue that are ready, the longest ready first, to one caller
-- alone for as long as :visibility; none of a queue that is paused. A task that still bears a receipt came back because
-- nobody settled it in time: that was one more attempt, and it was ready since the timeout was over. Reads what it hands out
-- and nothing of what is not due. Says whether the queue is known (know_queue).
-- Differs from postgresql/take_tasks.sql: looking comes first, so that nothing is written where nothing is ready; the
-- answer is put in order by whoever asked.

-- name: look
select t.id
  from matrixsched_queue_tasks t
 where t.queue = :queue and t.due_at <= {now}
   and not exists (select 1 from matrixsched_queue_settings s where s.queue = :queue and s.paused)
 limit 1;

-- name: take
update matrixsched_queue_tasks
   set receipt = :guid, due_at = {now} + :visibility,
       attempts = iif(receipt is null, attempts, attempts + 1),
       previous_start_at = iif(receipt is null, previous_start_at, start_at),
       start_at = iif(receipt is null, start_at, due_at)
 where id in (select t.id
                from matrixsched_queue_tasks t
               where t.queue = :queue and t.due_at <= {now}
               order by t.due_at, t.id
               limit :count)
returning id, queue, data, attempts, created_at, start_at, previous_start_at,
          exists (select 1 from matrixsched_known_queues k where k.queue = :queue) as known;
