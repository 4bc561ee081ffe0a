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
-- Whoever changes something about a semaphore leaves a mark with it, and so does a balance that does not come to its end. The
-- first of those that wait, and as many of those that hold as there are places, are read in the order of an index.
(select 'unbalanced', u.key, u.held || ' of ' || u.active || ' places held'
   from (select s.key, s.active,
                (select count(*) from (select true as is_held from matrixsched.semaphore_tasks h
                                        where h.semaphore = s.key and h.state <> 'waiting'
                                        order by h.priority desc, h.enqueued_at, h.task_id
                                        limit s.active) h) as held
           from matrixsched.semaphores s
          where (select true from matrixsched.semaphore_changes c where c.semaphore = s.key limit 1) is null
            and (select true from matrixsched.semaphore_tasks w
                  where w.semaphore = s.key and w.state = 'waiting'
                  order by w.priority desc, w.enqueued_at, w.task_id limit 1)
         offset 0) u
  where u.held < u.active
  order by u.key limit cast(:limit as integer))
union all
(select 'quota', 'settings', 'no row'
  where not exists (select true from matrixsched.quota_settings))
union all
(select 'task-lease', cast(t.id as text), 'of queue ' || t.queue || ', until ' || t.due_at
   from matrixsched.queue_tasks t
  where t.receipt is not null and t.due_at > {now} + cast(:task_reach as interval)
  order by t.id limit cast(:limit as integer))
union all
(select 'task-twice', cast(d.id as text), 'of queue ' || d.queue
   from matrixsched.queue_dead_letters d
  cross join lateral (select true as is_there from matrixsched.queue_tasks t where t.id = d.id and t.queue = d.queue offset 0) t
  order by d.id limit cast(:limit as integer));
