-- look_queues (postgresql). Promise: of each of these queues whether something is ready, when the next of what is not is due, if
-- that is so soon (the end of a visibility timeout is such a time, too), and when its settings were changed last; of a paused
-- queue the last alone, of one that has nothing of it nothing. It reads two entries of an index for each queue, whatever there
-- is, and passes over those of tasks that were done and not vacuumed yet: of a drain they are at the ends of timeouts, which is
-- why it does not look further than :within. It locks nothing.
select q.queue, coalesce(r.ready, false) as ready, n.due_at as next_due_at, s.updated_at as settings_at, {now} as now
  from unnest(cast(:queues as integer[])) as q (queue)
  left join matrixsched.queue_settings s on s.queue = q.queue
  left join lateral (select true as ready
                       from matrixsched.queue_tasks t
                      where t.queue = q.queue and t.due_at <= {now} and s.paused is not true
                      order by t.due_at, t.id
                      limit (select 1)) r on true -- not known when the plan is made, lest all are sorted for the first
  left join lateral (select t.due_at
                       from matrixsched.queue_tasks t
                      where t.queue = q.queue and t.due_at > {now} and t.due_at <= {now} + cast(:within as interval)
                        and s.paused is not true
                      order by t.due_at, t.id
                      limit (select 1)) n on true
 where r.ready or n.due_at is not null or s.queue is not null;
