-- retry_tasks (postgresql). Promise: of these tasks those whose receipts are good (as in done_tasks) come back to their
-- queues, each at its time or after its delay, with one more attempt; nobody has them any more. Sent again it finds no good
-- receipt; the ids of those that came back are kept beside the request (request_ids). One row comes back in any case.
with back as (
    update matrixsched.queue_tasks t
       set attempts = t.attempts + 1, previous_start_at = t.start_at, receipt = null,
           start_at = coalesce((cast(:ats as timestamptz[]))[width_bucket(t.id, cast(:ids as bigint[]))],
                               ({now} at time zone 'UTC'
                                + (cast(:delays as interval[]))[width_bucket(t.id, cast(:ids as bigint[]))])
                               at time zone 'UTC'), -- days of 24 hours
           due_at = coalesce((cast(:ats as timestamptz[]))[width_bucket(t.id, cast(:ids as bigint[]))],
                             ({now} at time zone 'UTC'
                              + (cast(:delays as interval[]))[width_bucket(t.id, cast(:ids as bigint[]))])
                             at time zone 'UTC')
     where t.id = any (cast(:ids as bigint[]))
       and t.receipt = (cast(:guids as uuid[]))[width_bucket(t.id, cast(:ids as bigint[]))]
       and t.due_at > {now}
       /* pause point: retry_lock */
    returning t.id
),
request as (
    insert into matrixsched.requests (request_guid, created_at, task_ids)
    select cast(:request_guid as uuid), {now}, array(select id from back)
    on conflict do nothing
    returning task_ids
)
select (select task_ids from request) as ids;
