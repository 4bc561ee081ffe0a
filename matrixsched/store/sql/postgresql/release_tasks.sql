-- release_tasks (postgresql). Promise: these tasks hold and wait no longer, all of them or none: unless :missing_ok says that
-- it does not matter, nothing is written if one is not there (or not any more in the time that :guids say it is). A request
-- is carried out once: one that arrives late takes away no place that was given since. If a task was released, :change_guid is
-- among the requests, too (carried_out). Returns the tasks that were there.
with request as (
    insert into matrixsched.requests (request_guid, created_at) values (cast(:request_guid as uuid), {now})
    on conflict do nothing
    returning request_guid
),
given as materialized (
    select g.task_id, g.guid
      from unnest(cast(:task_ids as text[]), cast(:guids as uuid[])) as g (task_id, guid)
     where exists (select from request)
),
there as materialized (
    select t.task_id
      from (select * from given order by task_id collate "C") g
     cross join lateral (select t.task_id from matrixsched.semaphore_tasks t
                          where t.semaphore = cast(:semaphore as text) and t.task_id = g.task_id
                            and (g.guid is null or t.guid = g.guid)
                            /* pause point: release_tasks_lock */
                            for update) t
),
released as (
    delete from matrixsched.semaphore_tasks t
     where t.semaphore = cast(:semaphore as text) and t.task_id = any (array(select task_id from there))
       and (cast(:missing_ok as boolean) or (select count(*) from there) = cardinality(cast(:task_ids as text[])))
    returning t.task_id
),
changed as (
    insert into matrixsched.semaphore_changes (semaphore, change_guid)
    select cast(:semaphore as text), cast(:change_guid as uuid) where exists (select from released)
),
noted as (
    insert into matrixsched.requests (request_guid, created_at)
    select cast(:change_guid as uuid), {now} where exists (select from released)
    on conflict do nothing
),
told as (
    select pg_notify(cast(:channel as text), 'actions')
     where cast(:channel as text) is not null and exists (select from released)
)
select exists (select from request) as new, (select count(*) from told) as told,
       array(select task_id from there) as there;
