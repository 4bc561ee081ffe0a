-- worker_minutes (postgresql). Promise: what a worker says of a minute stands in the place of what it said before; sent again it
-- changes nothing. Its commit does not wait for the disk: after a crash of the server the worker says it anew.

-- name: report
with unflushed as materialized (
    select set_config('synchronous_commit', 'off', true)
)
insert into matrixsched.worker_minutes as w
       (minute, worker, reported_at, slots, running, outcomes, late, due, oldest_due_s)
select cast(:minute as timestamptz), cast(:worker as text), {now}, cast(:slots as integer), cast(:running as integer),
       cast(:outcomes as text), cast(:late as text), cast(:due as integer), cast(:oldest_due_s as double precision)
  from unflushed
on conflict (minute, worker) do update
   set reported_at = excluded.reported_at, slots = excluded.slots, running = excluded.running,
       outcomes = excluded.outcomes, late = excluded.late,
       due = coalesce(excluded.due, w.due), oldest_due_s = coalesce(excluded.oldest_due_s, w.oldest_due_s);

-- name: read
select minute, worker, reported_at, slots, running, outcomes, late, due, oldest_due_s
  from matrixsched.worker_minutes
 where minute > {now} - cast(:since as interval)
 order by minute, worker;

-- name: prune
with old as materialized (
    select ctid from matrixsched.worker_minutes
     where minute < {now} - cast(:keep as interval)
     order by minute
     limit cast(:limit as integer)
       for update skip locked
),
gone as (
    delete from matrixsched.worker_minutes where ctid = any (array(select ctid from old)) returning 1
)
select count(*) as gone from gone;
