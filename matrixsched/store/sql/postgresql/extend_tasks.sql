-- extend_tasks (postgresql). Promise: of these tasks those whose receipts are good (as in done_tasks) are held for :visibility
-- from now on; with :only_longer those that are held for longer stay so. Returns those. Never waits: what is locked at this moment is being settled or extended by its holder. That does
-- not make its receipt void: `held` tells, of those that were not extended, which receipts are good all the same.

-- name: extend
with mine as materialized (
    select t.id
      from matrixsched.queue_tasks t
     where t.id = any (cast(:ids as bigint[]))
       and t.receipt = (cast(:guids as uuid[]))[width_bucket(t.id, cast(:ids as bigint[]))]
       and t.due_at > {now}
       /* pause point: extend_tasks_lock */
       for update skip locked
)
update matrixsched.queue_tasks t
   set due_at = greatest({now} + cast(:visibility as interval), case when cast(:only_longer as boolean) then t.due_at end)
 where t.id = any (array(select id from mine))
returning t.id;

-- name: held
select t.id from matrixsched.queue_tasks t
 where t.id = any (cast(:ids as bigint[]))
   and t.receipt = (cast(:guids as uuid[]))[width_bucket(t.id, cast(:ids as bigint[]))]
   and t.due_at > {now};
