-- take_tasks (postgresql). Promise: hands out up to :count tasks of a queue that are ready, the longest ready first, to one
-- caller alone for as long as :visibility; none of a queue that is paused. A task that still bears a receipt came back
-- because nobody settled it in time: that was one more attempt, and it was ready since the timeout was over. Never waits; reads
-- what it hands out and nothing of what is not due. Says whether the queue is known (know_queue).
with due as materialized (
    select t.id
      from matrixsched.queue_tasks t
     where t.queue = cast(:queue as integer) and t.due_at <= {now}
       and not exists (select from matrixsched.queue_settings s where s.queue = cast(:queue as integer) and s.paused)
       /* pause point: take_lock */
     order by t.due_at, t.id
     limit (select cast(:count as integer)) -- not known when the plan is made, lest few seem to be there and all are sorted
       for update skip locked
),
taken as (
    update matrixsched.queue_tasks t
       set receipt = cast(:guid as uuid), due_at = {now} + cast(:visibility as interval),
           attempts = case when t.receipt is null then t.attempts else t.attempts + 1 end,
           previous_start_at = case when t.receipt is null then t.previous_start_at else t.start_at end,
           start_at = case when t.receipt is null then t.start_at else t.due_at end
     where t.id = any (array(select id from due))
    returning t.id, t.queue, t.data, t.attempts, t.created_at, t.start_at, t.previous_start_at
)
select t.*, exists (select from matrixsched.known_queues k where k.queue = cast(:queue as integer)) as known
  from taken t
 order by t.start_at, t.id;
