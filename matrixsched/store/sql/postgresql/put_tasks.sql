-- put_tasks (postgresql). Promise: these tasks are in their queues, all of them, under ids that rise in the order given; a
-- request is carried out once, however often it is sent, and its ids are kept beside it (request_ids) for whoever sends it
-- again because no answer came. Each can be taken from its start on: the time given, or a delay from now. Nothing is locked
-- but the request. One row comes back in any case.
with given as materialized (
    select nextval('matrixsched.queue_tasks_id_seq') as id, g.queue, g.data, g.start_at
      from (select u.queue, u.data,
                   coalesce(u.at, ({now} at time zone 'UTC' + u.delay) at time zone 'UTC') as start_at -- days of 24 hours
              from unnest(cast(:queues as integer[]), cast(:datas as bytea[]), cast(:ats as timestamptz[]),
                          cast(:delays as interval[])) with ordinality as u (queue, data, at, delay, position)
             order by u.position) g
),
request as (
    insert into matrixsched.requests (request_guid, created_at, task_ids)
    select cast(:request_guid as uuid), {now}, array(select id from given order by id)
    on conflict do nothing
    returning task_ids
),
written as (
    insert into matrixsched.queue_tasks (id, queue, attempts, created_at, start_at, due_at, data)
    select id, queue, 0, {now}, start_at, start_at, data
      from given
     where exists (select from request)
     order by id
),
told as (
    select pg_notify(cast(:channel as text), 'queues')
     where cast(:channel as text) is not null and exists (select from request)
)
select (select task_ids from request) as ids, (select count(*) from told) as told;
