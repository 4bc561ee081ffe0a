-- semaphore_tasks (postgresql). Promise: who holds a place of a semaphore and who waits, the most important first. It locks
-- nothing, and reads no more than it answers with, but for `position` and `count`, which read what they count.

-- name: held
select * from matrixsched.semaphore_tasks t
 where t.semaphore = cast(:semaphore as text) and t.state <> 'waiting'
 order by t.priority desc, t.enqueued_at, t.task_id
 limit cast(:limit as integer);

-- name: waiting
select * from matrixsched.semaphore_tasks t
 where t.semaphore = cast(:semaphore as text) and t.state = 'waiting'
 order by t.priority desc, t.enqueued_at, t.task_id
 limit cast(:limit as integer);

-- name: find
select * from matrixsched.semaphore_tasks t
 where t.semaphore = cast(:semaphore as text) and t.task_id = cast(:task_id as text);

-- name: position
-- How many wait before it; counting stops at :count_max.
select (select count(*)
          from (select from matrixsched.semaphore_tasks b
                 where b.semaphore = t.semaphore and b.state = 'waiting' and b.priority >= t.priority
                   and (b.priority > t.priority
                        or (b.enqueued_at, b.task_id) < (t.enqueued_at, t.task_id))
                 limit cast(:count_max as integer)) c) as before
  from matrixsched.semaphore_tasks t
 where t.semaphore = cast(:semaphore as text) and t.task_id = cast(:task_id as text) and t.state = 'waiting';

-- name: count
-- How many hold, were asked and wait; counting of those that wait stops at :count_max, the best first, and so does the
-- search for who has waited longest.
select {now} as now, h.held, h.asked, w.waiting, w.oldest_at
  from (select count(*) as held, count(*) filter (where t.state = 'asked') as asked
          from matrixsched.semaphore_tasks t
         where t.semaphore = cast(:semaphore as text) and t.state <> 'waiting') h
 cross join (select count(*) as waiting, min(f.enqueued_at) as oldest_at
               from (select t.enqueued_at from matrixsched.semaphore_tasks t
                      where t.semaphore = cast(:semaphore as text) and t.state = 'waiting'
                      order by t.priority desc, t.enqueued_at, t.task_id
                      limit cast(:count_max as integer)) f) w;
