-- queue_workers (sqlite). Promise: a worker says that it is there and hears in the same breath which queues it is to work on;
-- whoever manages, and has the chore `queues` to prove it, reads what all said lately and tells each its share.
-- Differs from postgresql/queue_workers.sql: json_each instead of arrays.

-- name: report
insert into matrixsched_queue_workers (worker, name, processors_max, report, seen_at)
values (:worker, :worker_name, :processors_max, :report, {now})
on conflict (worker) do update
   set name = excluded.name, processors_max = excluded.processors_max, report = excluded.report,
       seen_at = excluded.seen_at
returning assignment, assigned_at;

-- name: reports
-- Of workers that were seen lately; one seen in the future was so before the clock was set back.
select w.worker, w.name, w.processors_max, w.report, w.seen_at, w.assignment, w.assigned_at, {now} as now
  from matrixsched_queue_workers w
 where w.seen_at between {now} - :within and {now} + :within
 order by w.worker;

-- name: assign
update matrixsched_queue_workers as w
   set assignment = g.value ->> 1, assigned_at = {now}
  from json_each(:assignments) as g
 where w.worker = g.value ->> 0
   and exists (select 1 from matrixsched_chores c
                where c.name = 'queues' and c.held_by = :holder and c.held_until > {now})
returning worker;

-- name: leave
delete from matrixsched_queue_workers where worker = :worker returning worker;

-- name: forget
delete from matrixsched_queue_workers
 where seen_at < {now} - :unseen_for or seen_at > {now} + :unseen_for
returning worker;
