-- worker_minutes (sqlite). Promise: what a worker says of a minute stands in the place of what it said before; sent again it
-- changes nothing.
-- Differs from postgresql/worker_minutes.sql: its commit is as durable as all others; what is old is deleted by its key.

-- name: report
insert into matrixsched_worker_minutes as w
       (minute, worker, reported_at, slots, running, outcomes, late, due, oldest_due_s)
values (:minute, :worker, {now}, :slots, :running, :outcomes, :late, :due, :oldest_due_s)
on conflict (minute, worker) do update
   set reported_at = excluded.reported_at, slots = excluded.slots, running = excluded.running,
       outcomes = excluded.outcomes, late = excluded.late,
       due = coalesce(excluded.due, w.due), oldest_due_s = coalesce(excluded.oldest_due_s, w.oldest_due_s);

-- name: read
select minute, worker, reported_at, slots, running, outcomes, late, due, oldest_due_s
  from matrixsched_worker_minutes
 where minute > {now} - :since
 order by minute, worker;

-- name: prune
delete from matrixsched_worker_minutes
 where (minute, worker) in (select minute, worker from matrixsched_worker_minutes
                             where minute < {now} - :keep
                             order by minute
                             limit :limit)
returning minute;
