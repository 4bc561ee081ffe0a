-- queue_tasks (postgresql). Promise: tasks of queues are shown, and those that nobody has are hastened or purged, a batch at a
-- time; never waits, and leaves alone what somebody has or takes at this moment. What it reads is by index and no more than it
-- answers with, but for tasks that are taken, which it passes over.

-- name: peek
select t.*, {now} as now
  from matrixsched.queue_tasks t
 where t.queue = cast(:queue as integer)
 order by t.due_at, t.id
 limit (select cast(:limit as integer));

-- name: delayed
select t.id
  from matrixsched.queue_tasks t
 where t.queue = cast(:queue as integer) and t.due_at > {now} and t.receipt is null
 order by t.due_at, t.id
 limit (select cast(:limit as integer));

-- name: hasten
-- Of these tasks those that are delayed are ready.
with mine as materialized (
    select t.id
      from matrixsched.queue_tasks t
     where t.id = any (cast(:ids as bigint[])) and t.queue = cast(:queue as integer)
       and (t.due_at > {now}) is true -- or they would be looked for by that
       and t.receipt is null
       /* pause point: hasten_lock */
       for update skip locked
),
ready as (
    update matrixsched.queue_tasks t
       set start_at = {now}, due_at = {now}
     where t.id = any (array(select id from mine))
    returning t.id
),
told as (
    select pg_notify(cast(:channel as text), 'queues')
     where cast(:channel as text) is not null and exists (select from ready)
)
select r.id, (select count(*) from told) as told from ready r;

-- name: waiting
-- Judged behind the order of the index: with one more condition so few seem to be there that all would be read and sorted.
select f.id
  from (select t.id, t.receipt is null or t.due_at <= {now} as is_free
          from matrixsched.queue_tasks t
         where t.queue = cast(:queue as integer)
         order by t.due_at, t.id
        offset 0) f
 where f.is_free
 limit (select cast(:limit as integer));

-- name: purge
-- Of these tasks those are gone that nobody has.
with mine as materialized (
    select t.id
      from matrixsched.queue_tasks t
     where t.id = any (cast(:ids as bigint[])) and (t.queue = cast(:queue as integer)) is true
       and (t.receipt is null or t.due_at <= {now})
       /* pause point: purge_lock */
       for update skip locked
)
delete from matrixsched.queue_tasks t where t.id = any (array(select id from mine)) returning t.id;

-- name: sweep
-- Of the next :limit tasks, by id, those that are taken for longer than anybody may ask for (:reach from now) were taken
-- before the database's clock was set back: they are held for :reach and no longer.
with looked as materialized (
    select t.id, t.receipt is not null and t.due_at > {now} + cast(:reach as interval) as stranded
      from matrixsched.queue_tasks t
     where t.id > cast(:after as bigint)
     order by t.id
     limit (select cast(:limit as integer))
),
stranded as materialized ( -- hardly ever any
    select t.id
      from matrixsched.queue_tasks t
     where t.id = any (array(select id from looked where stranded))
       and t.receipt is not null and (t.due_at > {now} + cast(:reach as interval)) is true
       for update skip locked
),
shortened as (
    update matrixsched.queue_tasks t
       set due_at = {now} + cast(:reach as interval)
     where t.id = any (array(select id from stranded))
    returning t.id
)
select (select count(*) from looked) as looked, (select max(id) from looked) as last,
       (select count(*) from shortened) as shortened;
