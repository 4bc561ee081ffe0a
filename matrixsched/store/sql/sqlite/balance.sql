-- balance (sqlite). Promise: places go to the most important tasks, never more of them than the semaphore has; in one
-- transaction with the events that tell of it.
-- Differs from postgresql/balance.sql: with one writer at a time nothing needs a lock, and nothing is skipped.

-- name: changed
-- Semaphores behind :after that something was changed about, by key, a thousand at most; and whether a place was held for too
-- long, in any of all.
with recursive keys (key) as (
    select min(semaphore) from matrixsched_semaphore_changes where semaphore > :after
    union all
    select (select min(c.semaphore) from matrixsched_semaphore_changes c where c.semaphore > k.key)
      from keys k
     where k.key is not null
     limit 1001
)
select (select json_group_array(key) from keys where key is not null) as keys,
       exists (select 1 from matrixsched_semaphore_tasks indexed by matrixsched_semaphore_tasks_lapsing
                where hold_until <= {now}) as some_are_late;

-- name: late
-- In which of these semaphores a place was held for too long: one look at each, whatever is late in others.
select k.value as key
  from json_each(:keys) as k
 where exists (select 1 from matrixsched_semaphore_tasks t indexed by matrixsched_semaphore_tasks_late
                where t.semaphore = k.value and t.hold_until <= {now});

-- name: hold
select s.*, {now} as now from matrixsched_semaphores s where s.key = :semaphore;

-- name: seen
delete from matrixsched_semaphore_changes where semaphore = :semaphore;

-- name: lapse
-- Who did not renew a place in time waits again, behind its like.
insert into matrixsched_semaphore_tasks (semaphore, task_id, priority, state, guid, enqueued_at)
select t.semaphore, t.task_id, t.priority, 'waiting', g.value ->> 2, {now}
  from json_each(:tasks) as g
 cross join matrixsched_semaphore_tasks t -- in this order: each is found by its key
 where t.semaphore = :semaphore and t.task_id = g.value ->> 0 and t.guid = g.value ->> 1
on conflict (semaphore, task_id) do update
   set state = 'waiting', guid = excluded.guid, enqueued_at = excluded.enqueued_at,
       acquired_at = null, asked_at = null, hold_until = null
returning task_id;

-- name: keep
-- Places are no longer to be renewed: those that were given before are held for good, too. They are looked for among those
-- that hold: where nobody ran ANALYZE, all that wait would be read.
update matrixsched_semaphore_tasks indexed by matrixsched_semaphore_tasks_held
   set hold_until = null
 where semaphore = :semaphore and state <> 'waiting' and hold_until is not null
returning task_id;

-- name: write
-- Only what is still as it was read. What follows a state is known: who waits gets a place, who holds one is asked for it,
-- who was asked is so no longer.
update matrixsched_semaphore_tasks
   set state = case state when 'acquired' then 'asked' else 'acquired' end,
       acquired_at = coalesce(acquired_at, {now}),
       asked_at = case state when 'acquired' then {now} end,
       hold_until = case state when 'waiting' then {now} + :hold_for else hold_until end
 where semaphore = :semaphore
   and task_id in (select t.task_id
                     from json_each(:tasks) as g
                    cross join matrixsched_semaphore_tasks t -- in this order: each is found by its key
                    where t.semaphore = :semaphore and t.task_id = g.value ->> 0 and t.guid = g.value ->> 1
                      and t.state = g.value ->> 2)
returning guid;

-- name: done
update matrixsched_semaphores set balanced_at = {now} where key = :semaphore;
