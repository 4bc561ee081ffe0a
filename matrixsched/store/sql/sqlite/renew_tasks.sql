-- renew_tasks (sqlite). Promise: those of these tasks that hold a place hold it for another `hold_for`, if the semaphore has
-- one. Returns the tasks that hold. Compared with the guids that are given.
-- Differs from postgresql/renew_tasks.sql: json_each instead of unnest; no row needs a lock.
update matrixsched_semaphore_tasks
   set hold_until = {now} + (select hold_for from matrixsched_semaphores where key = :semaphore)
 where semaphore = :semaphore
   and task_id in (select t.task_id
                     from json_each(:tasks) as g
                    cross join matrixsched_semaphore_tasks t -- in this order: each is found by its key
                    where t.semaphore = :semaphore and t.task_id = g.value ->> 0 and t.state <> 'waiting'
                      and (g.value ->> 1 is null or t.guid = g.value ->> 1))
returning task_id;
