-- extend_tasks (sqlite). Promise: of these tasks those whose receipts are good (as in done_tasks) are held for :visibility from
-- now on; with :only_longer those that are held for longer stay so. Returns those.
-- Differs from postgresql/extend_tasks.sql: json_each instead of arrays; no row needs a lock.
update matrixsched_queue_tasks
   set due_at = max({now} + :visibility, iif(:only_longer, due_at, 0))
 where id in (select t.id
                from json_each(:receipts) as g
               cross join matrixsched_queue_tasks t -- in this order: each is found by its key
               where t.id = g.value ->> 0 and t.receipt = g.value ->> 1 and t.due_at > {now})
returning id;
