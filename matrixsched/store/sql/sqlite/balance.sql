-- balance (sqlite). Promise: places go to the most important tasks, never more of them than the semaphore has; in one
-- transaction with the events that tell of it.
-- Differs from postgresql/balance.sql: with one writer at a time nothing needs a lock, and nothing is skipped.

-- name: changed
select semaphore as key from matrixsched_semaphore_changes
union
select semaphore from matrixsched_semaphore_tasks where hold_until <= {now}
limit :limit;

-- name: hold
select s.*, {now} as now from matrixsched_semaphores s where s.key = :semaphore;

-- name: seen
delete from matrixsched_semaphore_changes where semaphore = :semaphore;

-- name: lapse
delete from matrixsched_semaphore_tasks where semaphore = :semaphore and hold_until <= {now}
returning task_id;

-- name: write
update matrixsched_semaphore_tasks as t
   set state = g.value ->> 3,
       acquired_at = coalesce(t.acquired_at, {now}),
       asked_at = case g.value ->> 3 when 'asked' then {now} end,
       hold_until = case g.value ->> 2 when 'waiting' then {now} + :hold_for else t.hold_until end
  from json_each(:tasks) as g
 where t.semaphore = :semaphore and t.task_id = g.value ->> 0 and t.guid = g.value ->> 1 and t.state = g.value ->> 2
returning task_id;

-- name: done
update matrixsched_semaphores set balanced_at = {now} where key = :semaphore;
