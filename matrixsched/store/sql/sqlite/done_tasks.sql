-- done_tasks (sqlite). Promise: of these tasks those are gone whose receipts are good: the same as in the row, and the
-- timeout is not over. The others stay as they are. Returns those that are gone.
-- Differs from postgresql/done_tasks.sql: json_each instead of arrays; no row needs a lock. `there` tells, where no answer
-- came to the first try, which of them are still there.

-- name: delete
delete from matrixsched_queue_tasks
 where id in (select t.id
                from json_each(:receipts) as g
               cross join matrixsched_queue_tasks t -- in this order: each is found by its key
               where t.id = g.value ->> 0 and t.receipt = g.value ->> 1 and t.due_at > {now})
returning id;

-- name: there
select t.id
  from json_each(:ids) as g
 cross join matrixsched_queue_tasks t -- in this order: each is found by its key
 where t.id = g.value;
