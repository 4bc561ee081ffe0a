-- move (sqlite). Promise: every incoming row taken is gone; if its action is live, exactly one processing row stands for
-- it. Rows that are due, pass no gate and may run here are claimed in passing, as `claim` would: the caller chooses at
-- most its limit of those that `judge` calls claimable. Events are taken and claimed first, or alone if :only_events. Those that have to pass a gate go to their gated lanes;
-- what is not due waits in `coming` if it has one, else ungated. Events pass none, and wait in a lane of their own, for
-- whatever it may be. Earlier versions of its action that wait in processing go: an action that is moved often leaves no trail. Writes only for the holder of the shard (fence),
-- or for whoever takes it in the same transaction (acquire_shard.take) because nobody holds it.
-- Differs from postgresql/move.sql: `judge` reads, the others write what it said, row by row by exact key; all in one
-- write transaction, so nothing can be busy and no row needs a lock. `probe` finds out without one if there is any
-- work, and in it once more, for all that follow, if the shard is still held.

-- name: probe
select 1
  from matrixsched_shard_locks l
 where l.shard_id = :shard_id and l.last_lock_guid = :sync_guid and l.locked
   and exists (select 1 from matrixsched_incoming_queue i where i.shard_id = :shard_id);

-- name: probe_free
select 1
  from matrixsched_shard_locks l
 where l.shard_id = :shard_id and not l.locked and {now} < :not_after
   and l.last_lock_guid <> :sync_guid -- or it was carried out already
   and exists (select 1 from matrixsched_incoming_queue i where i.shard_id = :shard_id);

-- name: judge
with events as materialized (
    select i.*
      from matrixsched_incoming_queue i indexed by matrixsched_incoming_queue_events
     where i.shard_id = :shard_id and i.lane = 'event'
     order by i.created_at
     limit :move_limit
),
others as materialized (
    select i.*
      from matrixsched_incoming_queue i
     where i.shard_id = :shard_id and i.lane <> 'event'
     order by i.created_at
     limit iif(:only_events, 0, :move_limit - (select count(*) from events))
),
taken as materialized (
    select i.shard_id, i.created_at, i.action_id, i.action_guid, i.scheduled_at, i.expires_at,
           (select max(s.scheduled_at) from matrixsched_processing_queue s
             where s.shard_id = i.shard_id and s.action_id = i.action_id and s.action_guid <> i.action_guid
               and s.claimed_by is not null and s.scheduled_at > {now}) as blocked_until,
           exists (select 1 from matrixsched_processing_queue s
                    where s.shard_id = i.shard_id and s.action_id = i.action_id and s.action_guid <> i.action_guid
                      and s.claimed_by is not null and s.scheduled_at <= {now}) as has_late,
           exists (select 1 from matrixsched_processing_queue s
                    where s.shard_id = i.shard_id and s.action_id = i.action_id
                      and s.action_guid = i.action_guid) as present
      from (select * from events union all select * from others) i
)
select t.created_at, t.action_id, t.action_guid, t.scheduled_at as due_at, t.expires_at, t.blocked_until, t.has_late,
       1 as attempt, 0 as interrupted, a.version, a.revision, a.handler, a.payload, a.terms, a.priority, a.template, a.zone, a.tick,
       a.tick_at, a.tick_failures,
       case when a.action_guid is null or t.present then 'dead'
            when t.scheduled_at > {now} then 'waiting'
            when t.blocked_until is not null then 'blocked'
            when a.handler not in (select value from json_each(:handlers)) then 'foreign'
            when a.lane = 'event' then 'claimable'
            when a.lane <> ''
                 or exists (select 1 from matrixsched_limits where name in ('global', 'handler:' || a.handler))
                then 'gated'
            else 'claimable' end as verdict,
       a.lane = 'event' as is_event,
       a.lane <> '' as has_gate,
       case when a.lane <> '' then a.lane
            else 'limit|' || a.priority || '||' || replace(replace(a.handler, '%', '%25'), '|', '%7C')
            end as gated_lane
  from taken t
  left join matrixsched_scheduled_actions a
    on a.shard_id = t.shard_id and a.action_id = t.action_id and a.action_guid = t.action_guid and a.state = 'live';

-- name: remove
delete from matrixsched_incoming_queue
 where shard_id = :shard_id and created_at = :created_at and action_id = :action_id and action_guid = :action_guid;

-- name: drop
delete from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :action_id and action_guid <> :action_guid and claimed_by is null;

-- name: insert
insert into matrixsched_processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, expires_at, attempt, interrupted, claimed_by, claimed_at,
        added_at, moved_by, moved_at, rescheduled_by, rescheduled_at)
values (:shard_id, :action_id, :action_guid, :lane, :scheduled_at, :expires_at, :attempt, 0, :claimed_by, :claimed_at,
        :created_at, :sync_guid, {now}, :claimed_by, :claimed_at);
