-- find_in_installation (postgresql). Promise: tells what is wrong with what belongs to no action, each statement in one
-- snapshot; it locks and writes nothing.

-- name: strays
-- Shards that do not exist, and have rows.
select distinct s.shard_id
  from (select shard_id from matrixsched.scheduled_actions where shard_id < 0
        union all
        select shard_id from matrixsched.scheduled_actions where shard_id >= cast(:shard_count as integer)
        union all
        select shard_id from matrixsched.incoming_queue where shard_id < 0
        union all
        select shard_id from matrixsched.incoming_queue where shard_id >= cast(:shard_count as integer)
        union all
        select shard_id from matrixsched.processing_queue where shard_id < 0
        union all
        select shard_id from matrixsched.processing_queue where shard_id >= cast(:shard_count as integer)
        union all
        select shard_id from matrixsched.attempt_history where shard_id < 0
        union all
        select shard_id from matrixsched.attempt_history where shard_id >= cast(:shard_count as integer)) s
 order by s.shard_id;

-- name: locks
select l.shard_id, cast(l.last_lock_guid as text) as guid, l.last_locked_by as holder,
       greatest(l.last_processing_start_at, l.last_heartbeat_at) > {now} + cast(:reach as interval) as is_ahead
  from matrixsched.shard_locks l
 order by l.shard_id;

-- name: chores
select c.name from matrixsched.chores c;

-- name: others
-- :limit of each kind.
(select 'template' as fault, t.template as subject, t.actions || ' live actions' as seen
   from (select a.template, count(*) as actions
           from matrixsched.scheduled_actions a
          where a.template is not null and a.state = 'live'
          group by a.template) t
  where not exists (select from matrixsched.templates k where k.name = t.template)
  order by t.template limit cast(:limit as integer))
union all
(select 'semaphore', t.semaphore, t.tasks || ' tasks'
   from (select k.semaphore, count(*) as tasks from matrixsched.semaphore_tasks k group by k.semaphore) t
  where not exists (select from matrixsched.semaphores s where s.key = t.semaphore)
  order by t.semaphore limit cast(:limit as integer))
union all
(select 'task-lease', cast(t.id as text), 'of queue ' || t.queue || ', until ' || t.due_at
   from matrixsched.queue_tasks t
  where t.receipt is not null and t.due_at > {now} + cast(:task_reach as interval)
  order by t.id limit cast(:limit as integer))
union all
(select 'task-twice', cast(d.id as text), 'of queue ' || d.queue
   from matrixsched.queue_dead_letters d
  cross join lateral (select from matrixsched.queue_tasks t where t.id = d.id and t.queue = d.queue offset 0) t
  order by d.id limit cast(:limit as integer));
