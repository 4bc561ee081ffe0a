-- semaphore_tasks (sqlite). Promise: who holds a place of a semaphore and who waits, the most important first. It locks
-- nothing, and reads no more than it answers with, but for `position` and `count`, which read what they count.
-- Differs from postgresql/semaphore_tasks.sql: no casts; an index is named where SQLite would take another.

-- name: held
select * from matrixsched_semaphore_tasks t
 where t.semaphore = :semaphore and t.state <> 'waiting'
 order by t.priority desc, t.enqueued_at, t.task_id
 limit :limit;

-- name: waiting
select * from matrixsched_semaphore_tasks t
 where t.semaphore = :semaphore and t.state = 'waiting'
 order by t.priority desc, t.enqueued_at, t.task_id
 limit :limit;

-- name: find
select * from matrixsched_semaphore_tasks t
 where t.semaphore = :semaphore and t.task_id = :task_id;

-- name: find_all
select t.* from json_each(:task_ids) as g
 cross join matrixsched_semaphore_tasks t on t.semaphore = :semaphore and t.task_id = g.value; -- in this order

-- name: created
-- How many of these tasks a request has made that is sent again, because no answer came: they carry the guids it brought along.
select count(*) as created
  from json_each(:tasks) as g
 cross join matrixsched_semaphore_tasks t -- in this order: each is found by its key
 where t.semaphore = :semaphore and t.task_id = g.value ->> 0 and t.guid = g.value ->> 1;

-- name: position
-- How many wait before it; counting stops at :count_max. Those that are more important, and those of its like that came
-- earlier, are counted apart: each is a piece of the index, however many of its like came later.
select (select count(*)
          from (select 1 from matrixsched_semaphore_tasks b indexed by matrixsched_semaphore_tasks_waiting
                 where b.semaphore = t.semaphore and b.state = 'waiting' and b.priority > t.priority
                union all
                select 1 from matrixsched_semaphore_tasks b indexed by matrixsched_semaphore_tasks_waiting
                 where b.semaphore = t.semaphore and b.state = 'waiting' and b.priority = t.priority
                   and (b.enqueued_at, b.task_id) < (t.enqueued_at, t.task_id)
                 limit :count_max) c) as before
  from matrixsched_semaphore_tasks t
 where t.semaphore = :semaphore and t.task_id = :task_id and t.state = 'waiting';

-- name: count
-- How many hold, were asked and wait; counting of those that wait stops at :count_max, the best first, and so does the
-- search for who has waited longest. And when the semaphore was last balanced.
select {now} as now, h.held, h.asked, w.waiting, w.oldest_at,
       (select s.balanced_at from matrixsched_semaphores s where s.key = :semaphore) as balanced_at
  from (select count(*) as held, count(*) filter (where t.state = 'asked') as asked
          from matrixsched_semaphore_tasks t indexed by matrixsched_semaphore_tasks_held
         where t.semaphore = :semaphore and t.state <> 'waiting') h
 cross join (select count(*) as waiting, min(f.enqueued_at) as oldest_at
               from (select t.enqueued_at from matrixsched_semaphore_tasks t
                      where t.semaphore = :semaphore and t.state = 'waiting'
                      order by t.priority desc, t.enqueued_at, t.task_id
                      limit :count_max) f) w;
