-- find_in_installation (sqlite). Promise: tells what is wrong with what belongs to no action, all of it in one snapshot; it
-- writes nothing.
-- Differs from postgresql/find_in_installation.sql: all statements are of one read transaction.

-- name: strays
-- Shards that do not exist, and have rows.
select distinct shard_id
  from (select shard_id from matrixsched_scheduled_actions where shard_id < 0
        union all
        select shard_id from matrixsched_scheduled_actions where shard_id >= :shard_count
        union all
        select shard_id from matrixsched_incoming_queue where shard_id < 0
        union all
        select shard_id from matrixsched_incoming_queue where shard_id >= :shard_count
        union all
        select shard_id from matrixsched_processing_queue where shard_id < 0
        union all
        select shard_id from matrixsched_processing_queue where shard_id >= :shard_count
        union all
        select shard_id from matrixsched_attempt_history where shard_id < 0
        union all
        select shard_id from matrixsched_attempt_history where shard_id >= :shard_count)
 order by shard_id;

-- name: locks
select l.shard_id, l.last_lock_guid as guid, l.last_locked_by as holder,
       max(l.last_processing_start_at, l.last_heartbeat_at) > {now} + :reach as is_ahead
  from matrixsched_shard_locks l
 order by l.shard_id;

-- name: chores
select c.name from matrixsched_chores c;

-- name: others
-- :limit of each kind.
select * from (
    select 'template' as fault, t.template as subject, t.actions || ' live actions' as seen
      from (select a.template, count(*) as actions
              from matrixsched_scheduled_actions a
             where a.template is not null and a.state = 'live'
             group by a.template) t
     where not exists (select 1 from matrixsched_templates k where k.name = t.template)
     order by t.template limit :limit)
union all
select * from (
    select 'semaphore', t.semaphore, t.tasks || ' tasks'
      from (select k.semaphore, count(*) as tasks from matrixsched_semaphore_tasks k group by k.semaphore) t
     where not exists (select 1 from matrixsched_semaphores s where s.key = t.semaphore)
     order by t.semaphore limit :limit)
union all
-- Whoever changes something about a semaphore leaves a mark with it, and so does a balance that does not come to its end.
select * from (
    select 'unbalanced', u.key, u.held || ' of ' || u.active || ' places held'
      from (select s.key, s.active,
                   (select count(*) from matrixsched_semaphore_tasks h
                     where h.semaphore = s.key and h.state <> 'waiting') as held
              from matrixsched_semaphores s
             where not exists (select 1 from matrixsched_semaphore_changes c where c.semaphore = s.key)
               and exists (select 1 from matrixsched_semaphore_tasks w where w.semaphore = s.key and w.state = 'waiting')
             limit -1) u
     where u.held < u.active
     order by u.key limit :limit)
union all
select 'quota', 'settings', 'no row'
 where not exists (select 1 from matrixsched_quota_settings)
union all
select * from (
    select 'task-lease', cast(t.id as text),
           'of queue ' || t.queue || ', until ' || strftime('%Y-%m-%d %H:%M:%S', t.due_at / 1000000, 'unixepoch')
      from matrixsched_queue_tasks t
     where t.receipt is not null and t.due_at > {now} + :task_reach
     order by t.id limit :limit)
union all
select * from (
    select 'task-twice', cast(d.id as text), 'of queue ' || d.queue
      from matrixsched_queue_dead_letters d
     cross join matrixsched_queue_tasks t on t.id = d.id and t.queue = d.queue
     order by d.id limit :limit);
