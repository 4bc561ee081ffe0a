-- renew_tasks (postgresql). Promise: those of these tasks that hold a place hold it for another `hold_for`, if the semaphore
-- has one. Returns the tasks that hold. Compared with the guids that are given.
with given as materialized (
    select g.task_id, g.guid from unnest(cast(:task_ids as text[]), cast(:guids as uuid[])) as g (task_id, guid)
),
there as materialized (
    select t.task_id
      from (select * from given order by task_id collate "C") g
     cross join lateral (select t.task_id from matrixsched.semaphore_tasks t
                          where t.semaphore = cast(:semaphore as text) and t.task_id = g.task_id and t.state <> 'waiting'
                            and (g.guid is null or t.guid = g.guid)
                            /* pause point: renew_lock */
                            for no key update) t
)
update matrixsched.semaphore_tasks t
   set hold_until = {now} + s.hold_for
  from matrixsched.semaphores s
 where s.key = cast(:semaphore as text) and t.semaphore = s.key
   and t.task_id = any (array(select task_id from there))
returning t.task_id;
