-- workers (postgresql). Promise: a worker says that it is there and what it did in a minute, which stands in the place of what it
-- said before; sent again it changes nothing. It is told which others reported lately. Its commit does not wait for the disk: after
-- a crash of the server it is said anew.

-- name: report
with unflushed as materialized (
    select set_config('synchronous_commit', 'off', true)
),
told as (
    insert into matrixsched.worker_minutes as w (minute, worker, outcomes, late, due, oldest_due_s)
    select cast(:minute as timestamptz), cast(:worker as text), cast(:outcomes as text), cast(:late as text),
           cast(:due as integer), cast(:oldest_due_s as double precision)
      from unflushed
    on conflict (minute, worker) do update
       set outcomes = excluded.outcomes, late = excluded.late,
           due = coalesce(excluded.due, w.due), oldest_due_s = coalesce(excluded.oldest_due_s, w.oldest_due_s)
)
insert into matrixsched.workers as w (worker, started_at, seen_at, slots, running, handlers)
select cast(:worker as text), {now}, {now}, cast(:slots as integer), cast(:running as integer), cast(:handlers as text)
  from unflushed
on conflict (worker) do update
   set seen_at = excluded.seen_at, slots = excluded.slots, running = excluded.running, handlers = excluded.handlers
returning (select shard_count from matrixsched.installation) as shards,
          (select cast(coalesce(json_object_agg(k.handlers, k.workers), '{}') as text)
             from (select o.handlers, count(*) as workers
                     from matrixsched.workers o
                    where o.worker <> cast(:worker as text)
                      and o.seen_at > {now} - cast(:others_within as interval)
                    group by o.handlers) k) as others;

-- name: leave
delete from matrixsched.workers where worker = cast(:worker as text) returning worker;

-- name: seen
select worker, started_at, seen_at, slots, running, handlers
  from matrixsched.workers
 order by worker;

-- name: minutes
select minute, worker, outcomes, late, due, oldest_due_s
  from matrixsched.worker_minutes
 where minute > {now} - cast(:since as interval)
 order by minute, worker;

-- name: prune
-- One that was killed took no leave.
with old as materialized (
    select ctid from matrixsched.worker_minutes
     where minute < {now} - cast(:keep as interval)
     order by minute
     limit cast(:limit as integer)
       for update skip locked
),
gone as (
    delete from matrixsched.worker_minutes where ctid = any (array(select ctid from old)) returning 1
),
silent as materialized (
    select ctid from matrixsched.workers
     where seen_at < {now} - cast(:keep as interval)
       for update skip locked
),
forgotten as (
    delete from matrixsched.workers where ctid = any (array(select ctid from silent)) returning 1
)
select (select count(*) from gone) + (select count(*) from forgotten) as gone;
