-- mend (sqlite). Promise: each mends one kind of fault, at the places that are named (:keys, each an id and a guid), if it is
-- still there: it is judged anew by the statement that writes. Sent again it does nothing. Answers with what was mended.
-- Differs from postgresql/mend.sql: where several tables are written these are several statements of one write transaction;
-- nobody else writes meanwhile, so that rows of incoming may change.

-- name: lost
-- Put back as it was written with the action.
insert into matrixsched_incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select a.shard_id, a.updated_at, a.action_id, a.action_guid, a.scheduled_at, a.lane, a.expires_at
  from json_each(:keys) as g
 cross join matrixsched_scheduled_actions a
    on a.shard_id = :shard_id and a.action_id = g.value ->> 0 and a.action_guid = g.value ->> 1 and a.state = 'live'
 where not exists (select 1 from matrixsched_processing_queue p
                    where p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid)
   and (a.action_id, a.action_guid) not in (select i.action_id, i.action_guid from matrixsched_incoming_queue i
                                             where i.shard_id = :shard_id)
on conflict do nothing
returning action_id as subject, action_guid as guid;

-- name: twice
-- The row in processing stays, or else the first one that came; a move that meets the others would drop them, too.
delete from matrixsched_incoming_queue as i
 where i.shard_id = :shard_id
   and (i.action_id, i.action_guid) in (select g.value ->> 0, g.value ->> 1 from json_each(:keys) as g)
   and ((i.created_at, i.action_id, i.action_guid)
        not in (select min(f.created_at), f.action_id, f.action_guid from matrixsched_incoming_queue f
                 where f.shard_id = :shard_id
                 group by f.action_id, f.action_guid)
        or exists (select 1 from matrixsched_processing_queue p
                    where p.shard_id = i.shard_id and p.action_id = i.action_id and p.action_guid = i.action_guid))
returning action_id as subject, action_guid as guid;

-- name: unwanted_incoming
-- No live action is at this version, and a guid never comes back.
delete from matrixsched_incoming_queue as i
 where i.shard_id = :shard_id
   and (i.action_id, i.action_guid) in (select g.value ->> 0, g.value ->> 1 from json_each(:keys) as g)
   and not exists (select 1 from matrixsched_scheduled_actions a
                    where a.shard_id = i.shard_id and a.action_id = i.action_id and a.action_guid = i.action_guid
                      and a.state = 'live')
returning action_id as subject, action_guid as guid;

-- name: unwanted_processing
-- As those of incoming; an attempt under way is left to its end.
delete from matrixsched_processing_queue as p
 where p.shard_id = :shard_id
   and (p.action_id, p.action_guid) in (select g.value ->> 0, g.value ->> 1 from json_each(:keys) as g)
   and (p.claimed_by is null or p.scheduled_at <= {now})
   and not exists (select 1 from matrixsched_scheduled_actions a
                    where a.shard_id = p.shard_id and a.action_id = p.action_id and a.action_guid = p.action_guid
                      and a.state = 'live')
returning action_id as subject, action_guid as guid;

-- name: lease
update matrixsched_processing_queue as p set scheduled_at = {now} + :reach
 where p.shard_id = :shard_id
   and (p.action_id, p.action_guid) in (select g.value ->> 0, g.value ->> 1 from json_each(:keys) as g)
   and p.claimed_by is not null and p.scheduled_at > {now} + :reach
returning action_id as subject, action_guid as guid;

-- name: time_incoming
update matrixsched_incoming_queue as i set scheduled_at = a.scheduled_at, expires_at = a.expires_at
  from matrixsched_scheduled_actions a
 where i.shard_id = :shard_id
   and (i.action_id, i.action_guid) in (select g.value ->> 0, g.value ->> 1 from json_each(:keys) as g)
   and a.shard_id = i.shard_id and a.action_id = i.action_id and a.action_guid = i.action_guid and a.state = 'live'
   and (i.scheduled_at <> a.scheduled_at or i.expires_at is not a.expires_at)
returning action_id as subject, action_guid as guid;

-- name: time_processing
-- The end of a lease is not the time of a row.
update matrixsched_processing_queue as p
   set expires_at = a.expires_at,
       scheduled_at = case when p.claimed_by is null
                                and (p.scheduled_at < a.scheduled_at
                                     or p.scheduled_at > max(a.scheduled_at, {now} + :reach))
                           then a.scheduled_at else p.scheduled_at end
  from matrixsched_scheduled_actions a
 where p.shard_id = :shard_id
   and (p.action_id, p.action_guid) in (select g.value ->> 0, g.value ->> 1 from json_each(:keys) as g)
   and a.shard_id = p.shard_id and a.action_id = p.action_id and a.action_guid = p.action_guid and a.state = 'live'
   and (p.claimed_by is null and (p.scheduled_at < a.scheduled_at
                                  or p.scheduled_at > max(a.scheduled_at, {now} + :reach))
        or p.expires_at is not a.expires_at)
returning action_id as subject, action_guid as guid;

-- name: lane
update matrixsched_processing_queue as p set lane = case when a.lane = 'event' then 'event' else '' end
  from matrixsched_scheduled_actions a
 where p.shard_id = :shard_id
   and (p.action_id, p.action_guid) in (select g.value ->> 0, g.value ->> 1 from json_each(:keys) as g)
   and a.shard_id = p.shard_id and a.action_id = p.action_id and a.action_guid = p.action_guid and a.state = 'live'
   and p.lane not in ('', 'coming', 'event', 'handler:' || a.handler, 'handler!' || a.handler)
   and not (p.lane >= 'limit|' and p.lane < 'quota}'
            and p.lane = case when a.lane <> '' then a.lane
                              else 'limit|' || a.priority || '||'
                                   || replace(replace(a.handler, '%', '%25'), '|', '%7C') end)
returning action_id as subject, action_guid as guid;

-- name: counters
update matrixsched_scheduled_actions as a
   set failed = max(a.failed, r.failed, a.consecutive_failures), interrupted = max(a.interrupted, r.interrupted)
  from (select g.value ->> 0 as action_id, g.value ->> 1 as action_guid,
               (select count(*) from matrixsched_attempt_history h
                 where h.shard_id = :shard_id and h.action_id = g.value ->> 0 and h.action_guid = g.value ->> 1
                   and h.outcome in ('failed', 'timed_out')) as failed,
               (select count(*) from matrixsched_attempt_history h
                 where h.shard_id = :shard_id and h.action_id = g.value ->> 0 and h.action_guid = g.value ->> 1
                   and h.outcome = 'interrupted')
               - coalesce((select p.interrupted from matrixsched_processing_queue p
                            where p.shard_id = :shard_id and p.action_id = g.value ->> 0
                              and p.action_guid = g.value ->> 1), 0) as interrupted
          from json_each(:keys) as g) r
 where a.shard_id = :shard_id and a.action_id = r.action_id and a.action_guid = r.action_guid
   and (a.failed < max(r.failed, a.consecutive_failures) or a.interrupted < r.interrupted)
returning action_id as subject, action_guid as guid;

-- name: forgotten
delete from matrixsched_attempt_history as h
 where h.shard_id = :shard_id and h.action_id in (select g.value ->> 0 from json_each(:keys) as g)
   and not exists (select 1 from matrixsched_scheduled_actions a
                    where a.shard_id = h.shard_id and a.action_id = h.action_id)
returning action_id as subject, null as guid;

-- name: misplaced
update matrixsched_scheduled_actions as a
   set shard_id = :right_shard,
       interrupted = a.interrupted + coalesce(
           (select p.interrupted from matrixsched_processing_queue p
             where p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid), 0)
 where a.shard_id = :shard_id and a.action_id = :subject
   and not exists (select 1 from matrixsched_scheduled_actions b
                    where b.shard_id = :right_shard and b.action_id = :subject)
   and not exists (select 1 from matrixsched_processing_queue p
                    where p.shard_id = :shard_id and p.action_id = :subject
                      and p.claimed_by is not null and p.scheduled_at > {now})
returning action_id as subject, null as guid;

-- name: misplaced_queue
-- It is queued anew where it belongs.
insert into matrixsched_incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select a.shard_id, a.updated_at, a.action_id, a.action_guid, a.scheduled_at, a.lane, a.expires_at
  from matrixsched_scheduled_actions a
 where a.shard_id = :right_shard and a.action_id = :subject and a.state = 'live'
on conflict do nothing;

-- name: misplaced_incoming
delete from matrixsched_incoming_queue where shard_id = :shard_id and action_id = :subject;

-- name: misplaced_processing
delete from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :subject and (claimed_by is null or scheduled_at <= {now});

-- name: misplaced_history
update or ignore matrixsched_attempt_history set shard_id = :right_shard
 where shard_id = :shard_id and action_id = :subject;

-- name: misplaced_drop
-- Of two actions of one id the one that was changed last stays, as where both were written in one shard; of two that were
-- changed at the same time the one at its place.
delete from matrixsched_scheduled_actions as a
 where a.shard_id = :shard_id and a.action_id = :subject
   and exists (select 1 from matrixsched_scheduled_actions b
                where b.shard_id = :other_shard and b.action_id = :subject
                  and (a.updated_at < b.updated_at or a.updated_at = b.updated_at and :is_astray))
   and not exists (select 1 from matrixsched_processing_queue p
                    where p.shard_id = :shard_id and p.action_id = :subject
                      and p.claimed_by is not null and p.scheduled_at > {now})
returning action_id as subject, null as guid;

-- name: misplaced_forget
delete from matrixsched_attempt_history where shard_id = :shard_id and action_id = :subject;

-- name: no_lock
insert into matrixsched_shard_locks (shard_id, last_lock_guid) values (:shard_id, :fresh_guid)
on conflict do nothing
returning cast(shard_id as text) as subject, null as guid;

-- name: extra_lock
delete from matrixsched_shard_locks
 where shard_id = :shard_id and last_lock_guid in (select g.value ->> 1 from json_each(:keys) as g)
returning cast(shard_id as text) as subject, last_lock_guid as guid;

-- name: lock_time
update matrixsched_shard_locks
   set last_processing_start_at = min(last_processing_start_at, {now}), last_heartbeat_at = min(last_heartbeat_at, {now})
 where shard_id = :shard_id and last_lock_guid in (select g.value ->> 1 from json_each(:keys) as g)
   and max(last_processing_start_at, last_heartbeat_at) > {now} + :reach
returning cast(shard_id as text) as subject, last_lock_guid as guid;

-- name: chore
insert into matrixsched_chores (name)
select g.value ->> 0 from json_each(:keys) as g where true
on conflict do nothing
returning name as subject, null as guid;

-- name: quota
-- As a migration made it.
insert into matrixsched_quota_settings (singleton, updated_at) values (1, {now})
on conflict do nothing
returning 'settings' as subject, null as guid;

-- name: unbalanced
-- The mark is deleted by the balance that it asks for.
insert into matrixsched_semaphore_changes (semaphore, change_guid)
select s.key, :fresh_guid
  from json_each(:keys) as g
 cross join matrixsched_semaphores s on s.key = g.value ->> 0
 where not exists (select 1 from matrixsched_semaphore_changes c where c.semaphore = s.key)
   and exists (select 1 from matrixsched_semaphore_tasks w where w.semaphore = s.key and w.state = 'waiting')
   and (select count(*) from matrixsched_semaphore_tasks h where h.semaphore = s.key and h.state <> 'waiting') < s.active
on conflict do nothing
returning semaphore as subject, null as guid;

-- name: task_lease
update matrixsched_queue_tasks set due_at = {now} + :task_reach
 where id in (select cast(g.value ->> 0 as integer) from json_each(:keys) as g)
   and receipt is not null and due_at > {now} + :task_reach
returning cast(id as text) as subject, null as guid;

-- name: task_twice
-- Only the very same task: where another one has its id, somebody has to decide.
delete from matrixsched_queue_dead_letters as d
 where (d.queue, d.id) in (select t.queue, t.id
                             from json_each(:keys) as g
                            cross join matrixsched_queue_tasks t on t.id = cast(g.value ->> 0 as integer))
   and exists (select 1 from matrixsched_queue_tasks t
                where t.id = d.id and t.created_at = d.created_at and t.data = d.data)
returning cast(id as text) as subject, null as guid;
