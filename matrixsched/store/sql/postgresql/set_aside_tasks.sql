-- set_aside_tasks (postgresql). Promise: of these tasks those whose receipts are good (as in done_tasks) are dead letters, each
-- with its reason. Sent again it finds no good receipt; the ids of those that were set aside are kept beside the request
-- (request_ids). One row comes back in any case.
with gone as (
    delete from matrixsched.queue_tasks t
     where t.id = any (cast(:ids as bigint[]))
       and t.receipt = (cast(:guids as uuid[]))[width_bucket(t.id, cast(:ids as bigint[]))]
       and t.due_at > {now}
       /* pause point: set_aside_lock */
    returning t.*
),
dead as (
    insert into matrixsched.queue_dead_letters
           (queue, id, attempts, created_at, start_at, previous_start_at, died_at, reason, data)
    select g.queue, g.id, g.attempts, g.created_at, g.start_at, g.previous_start_at, {now},
           (cast(:reasons as text[]))[width_bucket(g.id, cast(:ids as bigint[]))], g.data
      from gone g
),
request as (
    insert into matrixsched.requests (request_guid, created_at, task_ids)
    select cast(:request_guid as uuid), {now}, array(select id from gone)
    on conflict do nothing
    returning task_ids
)
select (select task_ids from request) as ids;
