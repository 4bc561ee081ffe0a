-- balance (postgresql). Promise: places go to the most important tasks, never more of them than the semaphore has; in one
-- transaction with the events that tell of it. One balance of a semaphore at a time; nobody waits for it, nor it for
-- anybody: what a user's transaction holds at this moment is left as it is, and balanced again.

-- name: changed
-- Semaphores behind :after that something was changed about, by key, a thousand at most; and whether a place was held for too
-- long, in any of all. Neither how many nor where and when is known when the plan is made: so a plan that is kept looks as
-- good as one made for this very look, which would cost more than the look itself.
with recursive keys (key) as (
    (select c.semaphore from matrixsched.semaphore_changes c
      where c.semaphore > (select cast(:after as text)) order by c.semaphore limit 1)
    union all
    select n.semaphore
      from keys k
     cross join lateral (select c.semaphore from matrixsched.semaphore_changes c
                          where c.semaphore > k.key order by c.semaphore limit 1) n
)
select array(select key from keys limit (select 1000)) as keys,
       coalesce((select true from matrixsched.semaphore_tasks
                  where hold_until <= (select {now})
                  order by hold_until limit 1), false) as some_are_late;

-- name: late
-- In which of these semaphores a place was held for too long: one look at each, whatever is late in others.
select k.key
  from unnest(cast(:keys as text[])) as k (key)
 cross join lateral (select from matrixsched.semaphore_tasks t
                      where t.semaphore = k.key and t.hold_until <= {now}
                      order by t.hold_until limit 1) t;

-- name: hold
select s.*, {now} as now
  from matrixsched.semaphores s
 where s.key = cast(:semaphore as text)
   for no key update skip locked;

-- name: seen
-- Before the tasks are read: what changes after that leaves a mark that is still there. Where nobody balanced for long
-- there may be very many; what is left has it balanced once more.
with marks as materialized (
    select c.change_guid from matrixsched.semaphore_changes c
     where c.semaphore = cast(:semaphore as text)
     order by c.change_guid
     limit (select 10000)
       for update skip locked
)
delete from matrixsched.semaphore_changes c
 where c.semaphore = cast(:semaphore as text) and c.change_guid = any (array(select change_guid from marks));

-- name: lapse
-- Who did not renew a place in time waits again, behind its like; who does so at this moment keeps it. Rows are written by
-- key, as in `write`: in other words an update would be joined with what is given.
with given as materialized (
    select g.task_id, g.guid, g.new_guid
      from unnest(cast(:task_ids as text[]), cast(:guids as uuid[]), cast(:new_guids as uuid[]))
           as g (task_id, guid, new_guid)
),
late as materialized (
    select t.task_id, t.priority, g.new_guid
      from (select * from given order by task_id collate "C") g
     cross join lateral (select t.task_id, t.priority from matrixsched.semaphore_tasks t
                          where t.semaphore = cast(:semaphore as text) and t.task_id = g.task_id and t.guid = g.guid
                            and (t.hold_until <= {now}) is true -- or each would be looked for by that
                            for update skip locked) t
)
insert into matrixsched.semaphore_tasks as t (semaphore, task_id, priority, state, guid, enqueued_at)
select cast(:semaphore as text), task_id, priority, 'waiting', new_guid, {now}
  from late
 order by task_id collate "C"
on conflict (semaphore, task_id) do update
   set state = 'waiting', guid = excluded.guid, enqueued_at = excluded.enqueued_at,
       acquired_at = null, asked_at = null, hold_until = null
returning t.task_id;

-- name: keep
-- Places are no longer to be renewed: those that were given before are held for good, too.
with bound as materialized (
    select t.task_id from matrixsched.semaphore_tasks t
     where t.semaphore = cast(:semaphore as text) and t.state <> 'waiting' and t.hold_until is not null
     order by t.priority desc, t.enqueued_at, t.task_id
     limit (select 1000000)
       for no key update skip locked
)
update matrixsched.semaphore_tasks t
   set hold_until = null
 where t.semaphore = cast(:semaphore as text) and t.task_id = any (array(select task_id from bound))
returning t.task_id;

-- name: write
-- Only what is still in the state in which it was read, in the same time; what a user's transaction holds is skipped. A
-- priority that was changed since has left a mark, and is seen by the next balance. What follows a state is known: who waits
-- gets a place, who holds one is asked for it, who was asked is so no longer. So the rows are found by key alone; joined
-- with what is given, all tasks of the semaphore might be read, or each compared with each.
with given as materialized (
    select g.task_id, g.guid, g.state_before
      from unnest(cast(:task_ids as text[]), cast(:guids as uuid[]), cast(:befores as text[]))
           as g (task_id, guid, state_before)
),
mine as materialized (
    select t.task_id
      from (select * from given order by task_id collate "C") g
     cross join lateral (select t.task_id from matrixsched.semaphore_tasks t
                          where t.semaphore = cast(:semaphore as text) and t.task_id = g.task_id and t.guid = g.guid
                            and t.state = g.state_before
                            /* pause point: balance_write */
                            for no key update skip locked) t
)
update matrixsched.semaphore_tasks t
   set state = case t.state when 'acquired' then 'asked' else 'acquired' end,
       acquired_at = coalesce(t.acquired_at, {now}),
       asked_at = case t.state when 'acquired' then {now} end,
       hold_until = case t.state when 'waiting' then {now} + cast(:hold_for as interval) else t.hold_until end
 where t.semaphore = cast(:semaphore as text) and t.task_id = any (array(select task_id from mine))
returning t.guid;

-- name: done
with noted as (
    update matrixsched.semaphores set balanced_at = {now} where key = cast(:semaphore as text)
)
insert into matrixsched.semaphore_changes (semaphore, change_guid)
select cast(:semaphore as text), cast(:again as uuid) where cast(:again as uuid) is not null;
