-- step_back (postgresql). Promise: a task that holds a place gives it up and waits again, where it stood among those that
-- wait, in one step: it is never gone. It waits under a new guid: what was said of the place is void. A request is carried
-- out once: one that arrives late gives up no place that was given since. If it took effect, :change_guid is among the requests,
-- too (carried_out). One row comes back in any case.
with request as (
    insert into matrixsched.requests (request_guid, created_at) values (cast(:request_guid as uuid), {now})
    on conflict do nothing
    returning request_guid
),
stepped as (
    update matrixsched.semaphore_tasks t
       set state = 'waiting', guid = cast(:guid as uuid), priority = coalesce(cast(:priority as double precision), t.priority),
           acquired_at = null, asked_at = null, hold_until = null
     where t.semaphore = cast(:semaphore as text) and t.task_id = cast(:task_id as text) and t.state <> 'waiting'
       and (cast(:hold as uuid) is null or t.guid = cast(:hold as uuid)) and exists (select from request)
           /* pause point: step_back_lock */
    returning t.task_id
),
changed as (
    insert into matrixsched.semaphore_changes (semaphore, change_guid)
    select cast(:semaphore as text), cast(:change_guid as uuid) where exists (select from stepped)
),
noted as (
    insert into matrixsched.requests (request_guid, created_at)
    select cast(:change_guid as uuid), {now} where exists (select from stepped)
    on conflict do nothing
),
told as (
    select pg_notify(cast(:channel as text), 'actions')
     where cast(:channel as text) is not null and exists (select from stepped)
)
select exists (select from request) as new, exists (select from stepped) as stepped, (select count(*) from told) as told;
