-- workers (sqlite). Promise: a worker says that it is there and what it did in a minute, which stands in the place of what it said
-- before; sent again it changes nothing. It is told which others reported lately.
-- Differs from postgresql/workers.sql: each table is written by a statement of its own, in one transaction; its commit is as
-- durable as all others.

-- name: report
insert into matrixsched_worker_minutes as w (minute, worker, outcomes, late, due, oldest_due_s)
values (:minute, :worker, :outcomes, :late, :due, :oldest_due_s)
on conflict (minute, worker) do update
   set outcomes = excluded.outcomes, late = excluded.late,
       due = coalesce(excluded.due, w.due), oldest_due_s = coalesce(excluded.oldest_due_s, w.oldest_due_s);

-- name: report_seen
insert into matrixsched_workers (worker, started_at, seen_at, slots, running, handlers)
values (:worker, {now}, {now}, :slots, :running, :handlers)
on conflict (worker) do update
   set seen_at = excluded.seen_at, slots = excluded.slots, running = excluded.running, handlers = excluded.handlers
returning (select shard_count from matrixsched_installation) as shards,
          (select json_group_object(k.handlers, k.workers)
             from (select o.handlers, count(*) as workers
                     from matrixsched_workers o
                    where o.worker <> :worker and o.seen_at > {now} - :others_within
                    group by o.handlers) k) as others;

-- name: leave
delete from matrixsched_workers where worker = :worker returning worker;

-- name: seen
select worker, started_at, seen_at, slots, running, handlers
  from matrixsched_workers
 order by worker;

-- name: minutes
select minute, worker, outcomes, late, due, oldest_due_s
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

-- name: prune_silent
-- One that was killed took no leave.
delete from matrixsched_workers where seen_at < {now} - :keep returning worker;
