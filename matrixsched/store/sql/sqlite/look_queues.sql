-- look_queues (sqlite). Promise: of each of these queues whether something is ready, when the next of what is not is due, if that
-- is so soon (the end of a visibility timeout is such a time, too), and when its settings were changed last; of a paused queue
-- the last alone, of one that has nothing of it nothing. It reads two entries of an index for each queue, whatever there is.
-- Differs from postgresql/look_queues.sql: json_each instead of an array; no lateral joins.
select f.queue, f.ready, f.next_due_at, f.settings_at, {now} as now
  from (select q.value as queue, s.updated_at as settings_at,
               s.paused is not 1 and exists (select 1 from matrixsched_queue_tasks t
                                              where t.queue = q.value and t.due_at <= {now}) as ready,
               iif(s.paused is not 1, (select min(t.due_at) from matrixsched_queue_tasks t
                                        where t.queue = q.value and t.due_at > {now} and t.due_at <= {now} + :within),
                   null) as next_due_at
          from json_each(:queues) as q
          left join matrixsched_queue_settings s on s.queue = q.value) f
 where f.ready or f.next_due_at is not null or f.settings_at is not null;
