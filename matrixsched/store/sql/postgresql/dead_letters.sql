-- dead_letters (postgresql). Promise: what was set aside is shown page by page, comes back as if it were new, or is deleted
-- for good, a batch at a time; what somebody else brings back or deletes at this moment is left to them.

-- name: page
select d.*
  from matrixsched.queue_dead_letters d
 where d.queue = cast(:queue as integer) and d.id > cast(:after as bigint)
 order by d.id
 limit (select cast(:limit as integer));

-- name: ids
select d.id
  from matrixsched.queue_dead_letters d
 where d.queue = cast(:queue as integer)
 order by d.id
 limit (select cast(:limit as integer));

-- name: times
select d.id, d.died_at
  from matrixsched.queue_dead_letters d
 where d.queue = cast(:queue as integer) and d.id > cast(:after as bigint)
 order by d.id
 limit (select cast(:limit as integer));

-- name: redrive
with mine as materialized (
    select d.id
      from matrixsched.queue_dead_letters d
     where d.queue = cast(:queue as integer) and d.id = any (cast(:ids as bigint[]))
       /* pause point: redrive_lock */
       for update skip locked
),
gone as (
    delete from matrixsched.queue_dead_letters d
     where d.queue = cast(:queue as integer) and d.id = any (array(select id from mine))
    returning d.id, d.queue, d.created_at, d.data
),
back as (
    insert into matrixsched.queue_tasks (id, queue, attempts, created_at, start_at, due_at, data)
    select id, queue, 0, created_at, {now}, {now}, data
      from gone
     order by id
    returning id
),
told as (
    select pg_notify(cast(:channel as text), 'queues')
     where cast(:channel as text) is not null and exists (select from back)
)
select b.id, (select count(*) from told) as told from back b;

-- name: purge
with mine as materialized (
    select d.id
      from matrixsched.queue_dead_letters d
     where d.queue = cast(:queue as integer) and d.id = any (cast(:ids as bigint[]))
       /* pause point: purge_dead_lock */
       for update skip locked
)
delete from matrixsched.queue_dead_letters d
 where d.queue = cast(:queue as integer) and d.id = any (array(select id from mine))
returning d.id;
