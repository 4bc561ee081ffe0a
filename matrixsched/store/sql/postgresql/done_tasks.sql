-- done_tasks (postgresql). Promise: of these tasks those are gone whose receipts are good: the same as in the row, and the
-- timeout is not over. The others stay as they are. Returns those that are gone. Rows are found by key; the ids rise, so
-- the receipt of each is found by halving. Waits for whoever extends the same tasks. `there` tells, where no
-- answer came to the first try, which of them are still there.

-- name: delete
delete from matrixsched.queue_tasks t
 where t.id = any (cast(:ids as bigint[]))
   and t.receipt = (cast(:guids as uuid[]))[width_bucket(t.id, cast(:ids as bigint[]))]
   and t.due_at > {now}
   /* pause point: done_lock */
returning t.id;

-- name: there
select t.id from matrixsched.queue_tasks t where t.id = any (cast(:ids as bigint[]));
