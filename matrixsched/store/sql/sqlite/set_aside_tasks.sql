-- set_aside_tasks (sqlite). Promise: of these tasks those whose receipts are good (as in done_tasks) are dead letters, each
-- with its reason. Returns those that were set aside.
-- Differs from postgresql/set_aside_tasks.sql: copying, deleting and noting the request are statements of one write
-- transaction, and what was carried out before is not sent again.

-- name: copy
insert into matrixsched_queue_dead_letters
       (queue, id, attempts, created_at, start_at, previous_start_at, died_at, reason, data)
select t.queue, t.id, t.attempts, t.created_at, t.start_at, t.previous_start_at, {now}, g.value ->> 2, t.data
  from json_each(:receipts) as g
 cross join matrixsched_queue_tasks t -- in this order: each is found by its key
 where t.id = g.value ->> 0 and t.receipt = g.value ->> 1 and t.due_at > {now}
returning id;

-- name: delete
delete from matrixsched_queue_tasks where id in (select value from json_each(:ids));
