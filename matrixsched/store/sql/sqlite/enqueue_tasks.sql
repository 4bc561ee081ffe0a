-- enqueue_tasks (sqlite). Promise: each of these tasks waits for a place, or goes on holding its own, with the priority
-- given; a request is carried out once, however often and however late it is sent: a task that was released since does not
-- come back. Whatever changes has the semaphore balanced (semaphores.change). Those enqueued at once stand in the order of
-- their positions, a microsecond apart, from :since on (or now).
-- Differs from postgresql/enqueue_tasks.sql: several statements in one transaction; no NOTIFY (workers watch data_version).

-- name: request
insert into matrixsched_requests (request_guid, created_at)
select :request_guid, {now} from matrixsched_semaphores where key = :semaphore
on conflict do nothing
returning request_guid;

-- name: write
insert into matrixsched_semaphore_tasks as t (semaphore, task_id, priority, state, guid, enqueued_at)
select :semaphore, g.value ->> 0, g.value ->> 1, 'waiting', g.value ->> 2, coalesce(:since, {now}) + (g.value ->> 3)
  from json_each(:tasks) as g
 where true
on conflict (semaphore, task_id) do update set priority = excluded.priority
 where t.priority <> excluded.priority
returning guid;
