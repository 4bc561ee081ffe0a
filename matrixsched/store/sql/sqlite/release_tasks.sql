-- release_tasks (sqlite). Promise: these tasks hold and wait no longer, all of them or none: unless the caller says that it
-- does not matter, nothing is written if one is not there (or not any more in the time that its guid says it is). A request
-- is carried out once: one that arrives late takes away no place that was given since. If a task was released, the change is
-- among the requests, too (carried_out.note).
-- Differs from postgresql/release_tasks.sql: several statements in one transaction.

-- name: request
insert into matrixsched_requests (request_guid, created_at) values (:request_guid, {now})
on conflict do nothing
returning request_guid;

-- name: there
select t.task_id
  from json_each(:tasks) as g
 cross join matrixsched_semaphore_tasks t -- in this order: each is found by its key
 where t.semaphore = :semaphore and t.task_id = g.value ->> 0 and (g.value ->> 1 is null or t.guid = g.value ->> 1);

-- name: delete
delete from matrixsched_semaphore_tasks
 where semaphore = :semaphore and task_id in (select value from json_each(:task_ids));
