-- renew_tasks (sqlite). Promise: those of these tasks that hold a place hold it for another `hold_for`, if the semaphore has
-- one. Returns the tasks that hold. Compared with the guids that are given.
-- Differs from postgresql/renew_tasks.sql: json_each instead of unnest; no row needs a lock.
update matrixsched_semaphore_tasks as t
   set hold_until = {now} + s.hold_for
  from matrixsched_semaphores s, json_each(:tasks) as g
 where s.key = :semaphore and t.semaphore = s.key and t.task_id = g.value ->> 0 and t.state <> 'waiting'
   and (g.value ->> 1 is null or t.guid = g.value ->> 1)
returning task_id;
