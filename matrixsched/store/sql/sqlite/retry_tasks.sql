-- retry_tasks (sqlite). Promise: of these tasks those whose receipts are good (as in done_tasks) come back to their queues,
-- each at its time, with one more attempt; nobody has them any more. Returns those that came back.
-- Differs from postgresql/retry_tasks.sql: json_each instead of arrays; the request is noted by a statement of its own, and
-- what was carried out before is not sent again.
update matrixsched_queue_tasks as t
   set attempts = t.attempts + 1, previous_start_at = t.start_at, receipt = null,
       start_at = g.value ->> 2, due_at = g.value ->> 2
  from json_each(:receipts) as g
 where t.id = g.value ->> 0 and t.receipt = g.value ->> 1 and t.due_at > {now}
returning id;
