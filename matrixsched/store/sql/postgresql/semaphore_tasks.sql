-- semaphore_tasks (postgresql). Promise: who holds a place of a semaphore and who waits, the most important first. It locks
-- nothing, and reads no more than it answers with, but for `position` and `count`, which read what they count.
-- A limit that is asked for is not known when the plan is made: were it, and did too few tasks seem to wait (after a bulk was
-- enqueued, say), they would all be read and sorted rather than taken in the order of the index.

-- name: held
select * from matrixsched.semaphore_tasks t
 where t.semaphore = cast(:semaphore as text) and t.state <> 'waiting'
 order by t.priority desc, t.enqueued_at, t.task_id
 limit (select cast(:limit as integer));

-- name: waiting
select * from matrixsched.semaphore_tasks t
 where t.semaphore = cast(:semaphore as text) and t.state = 'waiting'
 order by t.priority desc, t.enqueued_at, t.task_id
 limit (select cast(:limit as integer));

-- name: find
select * from matrixsched.semaphore_tasks t
 where t.semaphore = cast(:semaphore as text) and t.task_id = cast(:task_id as text);

-- name: find_all
select t.*
  from unnest(cast(:task_ids as text[])) as g (task_id)
 cross join lateral (select * from matrixsched.semaphore_tasks t
                      where t.semaphore = cast(:semaphore as text) and t.task_id = g.task_id
                      limit 1) t;

-- name: created
-- How many of these tasks a request has made that is sent again, because no answer came: they carry the guids it brought along.
select count(*) as created
  from unnest(cast(:task_ids as text[]), cast(:guids as uuid[])) as g (task_id, guid)
 cross join lateral (select from matrixsched.semaphore_tasks t
                      where t.semaphore = cast(:semaphore as text) and t.task_id = g.task_id and t.guid = g.guid
                      limit 1) t;

-- name: position
-- How many wait before it; counting stops at :count_max. Those that are more important, and those of its like that came
-- earlier, are counted apart: each is a piece of the index, however many of its like came later.
select (select count(*)
          from (select 1
                  from ((select 1 from matrixsched.semaphore_tasks b
                          where b.semaphore = t.semaphore and b.state = 'waiting' and b.priority > t.priority
                          order by b.priority desc, b.enqueued_at, b.task_id
                          limit (select cast(:count_max as integer)))
                        union all
                        (select 1 from matrixsched.semaphore_tasks b
                          where b.semaphore = t.semaphore and b.state = 'waiting' and b.priority = t.priority
                            and (b.enqueued_at, b.task_id) < (t.enqueued_at, t.task_id)
                          order by b.enqueued_at, b.task_id
                          limit (select cast(:count_max as integer)))) a
                 limit cast(:count_max as integer)) c) as before
  from matrixsched.semaphore_tasks t
 where t.semaphore = cast(:semaphore as text) and t.task_id = cast(:task_id as text) and t.state = 'waiting';

-- name: count
-- How many hold, were asked and wait; counting of those that wait stops at :count_max, the best first, and so does the
-- search for who has waited longest. And when the semaphore was last balanced.
select {now} as now, h.held, h.asked, w.waiting, w.oldest_at,
       (select s.balanced_at from matrixsched.semaphores s where s.key = cast(:semaphore as text)) as balanced_at
  from (select count(*) as held, count(*) filter (where t.state = 'asked') as asked
          from matrixsched.semaphore_tasks t
         where t.semaphore = cast(:semaphore as text) and t.state <> 'waiting') h
 cross join (select count(*) as waiting, min(f.enqueued_at) as oldest_at
               from (select t.enqueued_at from matrixsched.semaphore_tasks t
                      where t.semaphore = cast(:semaphore as text) and t.state = 'waiting'
                      order by t.priority desc, t.enqueued_at, t.task_id
                      limit (select cast(:count_max as integer))) f) w;
