-- enqueue_tasks (postgresql). Promise: each of these tasks waits for a place, or goes on holding its own, with the priority
-- given; a request is carried out once, however often and however late it is sent: a task that was released since does not
-- come back. Whatever changes has the semaphore balanced. Those enqueued at once stand in the order of their :positions, a
-- microsecond apart, from :since on (or now). Nothing is locked but the tasks themselves, in the order of their ids; the
-- semaphore is only read, so that nobody waits who enqueues other tasks. One row comes back in any case.
with there as materialized (
    select key from matrixsched.semaphores where key = cast(:semaphore as text)
           /* pause point: enqueue_request */
),
request as (
    insert into matrixsched.requests (request_guid, created_at)
    select cast(:request_guid as uuid), {now} from there
    on conflict do nothing
    returning request_guid
),
given as materialized (
    select g.task_id, g.priority, g.guid, g.position
      from unnest(cast(:task_ids as text[]), cast(:priorities as double precision[]), cast(:guids as uuid[]),
                  cast(:positions as integer[])) as g (task_id, priority, guid, position)
     where exists (select from request)
),
written as (
    insert into matrixsched.semaphore_tasks as t (semaphore, task_id, priority, state, guid, enqueued_at)
    select cast(:semaphore as text), task_id, priority, 'waiting', guid,
           coalesce(cast(:since as timestamptz), {now}) + position * interval '1 microsecond'
      from given
     order by task_id collate "C" -- every multi-row write goes in this order, or two of them deadlock
    on conflict (semaphore, task_id) do update set priority = excluded.priority
     where t.priority <> excluded.priority
    returning t.guid
),
changed as (
    insert into matrixsched.semaphore_changes (semaphore, change_guid)
    select cast(:semaphore as text), cast(:change_guid as uuid) where exists (select from written)
),
told as (
    select pg_notify(cast(:channel as text), 'actions')
     where cast(:channel as text) is not null and exists (select from written)
)
select exists (select from there) as there, exists (select from request) as new, (select count(*) from written) as written,
       (select count(*) from written w where w.guid = any (cast(:guids as uuid[]))) as created,
       (select count(*) from told) as told;
