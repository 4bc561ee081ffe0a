-- step_back (sqlite). Promise: a task that holds a place gives it up and waits again, where it stood among those that wait,
-- in one step: it is never gone. It waits under a new guid: what was said of the place is void.
-- Differs from postgresql/step_back.sql: the request, the change and that it took effect are noted by statements of their
-- own.
update matrixsched_semaphore_tasks
   set state = 'waiting', guid = :guid, priority = coalesce(:priority, priority),
       acquired_at = null, asked_at = null, hold_until = null
 where semaphore = :semaphore and task_id = :task_id and state <> 'waiting' and (:hold is null or guid = :hold)
returning task_id;
