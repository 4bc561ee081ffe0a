-- queue_workers (postgresql). Promise: a worker says that it is there and hears in the same breath which queues it is to work
-- on; whoever manages, and has the chore `queues` to prove it, reads what all said lately and tells each its share.

-- name: report
insert into matrixsched.queue_workers as w (worker, name, processors_max, report, seen_at)
values (cast(:worker as uuid), cast(:worker_name as text), cast(:processors_max as integer), cast(:report as jsonb), {now})
on conflict (worker) do update
   set name = excluded.name, processors_max = excluded.processors_max, report = excluded.report,
       seen_at = excluded.seen_at
returning cast(w.assignment as text) as assignment, w.assigned_at;

-- name: reports
-- Of workers that were seen lately; one seen in the future was so before the database's clock was set back.
select w.worker, w.name, w.processors_max, cast(w.report as text) as report, w.seen_at,
       cast(w.assignment as text) as assignment, w.assigned_at, {now} as now
  from matrixsched.queue_workers w
 where w.seen_at between {now} - cast(:within as interval) and {now} + cast(:within as interval)
 order by w.worker;

-- name: assign
update matrixsched.queue_workers w
   set assignment = cast((cast(:assignments as text[]))[array_position(cast(:workers as uuid[]), w.worker)] as jsonb),
       assigned_at = {now}
 where w.worker = any (cast(:workers as uuid[]))
   and exists (select from matrixsched.chores c
                where c.name = 'queues' and c.held_by = cast(:holder as uuid) and c.held_until > {now})
returning w.worker;

-- name: leave
delete from matrixsched.queue_workers where worker = cast(:worker as uuid) returning worker;

-- name: forget
delete from matrixsched.queue_workers
 where seen_at < {now} - cast(:unseen_for as interval) or seen_at > {now} + cast(:unseen_for as interval)
returning worker;
