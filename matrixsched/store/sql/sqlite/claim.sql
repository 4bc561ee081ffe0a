-- claim (sqlite). Promise: before a handler is called, its row is rescheduled to the end of the attempt's lease; so a
-- crash needs no cleaning up. Writes only for the holder of the shard (fence).
--   dead     the action has another guid or is finished                → deleted
--   blocked  another version of the action is being run                → due when that attempt's lease ends, at the latest
--                                                                      in a lease from now: clocks are set back;
--                                                                      before a gate it is to be put then
--   foreign  its handler is not known here                             → parked for workers that know it
--   gated    it has to pass a gate, as events never do                 → to its gated lane; told by the lanes' names
--   suspect  interrupted twice or more                                 → to the suspects' lane; from a gated lane beyond
--                                                                      :suspect_room, lest it hides the others there
--   waiting  it could run, but there is no room for more claims        → left as it is
--   claimed  all others: attempt + 1, returned with the action
-- A row whose claimed_by is still set when it is due was interrupted. Claimed rows of other versions whose leases are over
-- go, lest their attempts are prolonged beside the one at this version.
-- With :gated it is a gated lane, whose gates the caller holds open in the same transaction; rows that expired wait there
-- for `expire_waiting`, lest they take the place of others.
-- Differs from postgresql/claim.sql: one lane at a time; the caller picks the suspects that are claimed and
-- those that wait for room; `judge` reads, the others write what it said, row by row by exact key; all in one write transaction, so nothing can be busy and no row needs a lock. `probe` finds out without one if
-- there is any work.

-- name: probe
select 1
  from matrixsched_shard_locks l
 where l.shard_id = :shard_id and l.last_lock_guid = :sync_guid and l.locked
   and exists (select 1 from matrixsched_processing_queue p
                where p.shard_id = :shard_id and p.lane = :lane and p.scheduled_at <= {now});

-- name: judge
with due as materialized (
    select p.shard_id, p.action_id, p.action_guid, p.attempt, p.scheduled_at as due_at, p.claimed_by, p.claimed_at,
           p.interrupted + (p.claimed_by is not null) as interrupted,
           (select max(s.scheduled_at) from matrixsched_processing_queue s
             where s.shard_id = p.shard_id and s.action_id = p.action_id and s.action_guid <> p.action_guid
               and s.claimed_by is not null and s.scheduled_at > {now}) as blocked_until,
           exists (select 1 from matrixsched_processing_queue s
                    where s.shard_id = p.shard_id and s.action_id = p.action_id and s.action_guid <> p.action_guid
                      and s.claimed_by is not null and s.scheduled_at <= {now}) as has_late
      from matrixsched_processing_queue p
     where p.shard_id = :shard_id and p.lane = :lane and p.scheduled_at <= {now}
       and exists (select 1 from matrixsched_shard_locks l
                    where l.shard_id = :shard_id and l.last_lock_guid = :sync_guid and l.locked)
       and (not :gated or p.expires_at is null or p.expires_at > {now})
     order by p.scheduled_at, coalesce(p.expires_at, 9223372036854775807)
     limit :limit
)
select d.action_id, d.action_guid, d.attempt, d.due_at, d.claimed_by, d.claimed_at, d.interrupted, d.blocked_until, d.has_late,
       a.version, a.handler, a.payload, a.terms, a.priority, a.template, a.zone, a.expires_at, a.tick, a.tick_at,
       a.tick_failures,
       case when a.action_guid is null then 'dead'
            when d.blocked_until is not null then 'blocked'
            when not :gated and a.handler not in (select value from json_each(:handlers)) then 'foreign'
            when not :gated and a.lane <> 'event'
                 and (a.lane <> ''
                      or exists (select 1 from matrixsched_limits where name in ('global', 'handler:' || a.handler)))
                then 'gated'
            when d.interrupted < :suspect_from or :lane like 'handler!%' then 'claimed'
            else 'suspect' end as verdict,
       case when a.lane <> '' then a.lane
            else 'limit|' || a.priority || '||' || replace(replace(a.handler, '%', '%25'), '|', '%7C')
            end as gated_lane
  from due d
  left join matrixsched_scheduled_actions a
    on a.shard_id = d.shard_id and a.action_id = d.action_id and a.action_guid = d.action_guid and a.state = 'live';

-- name: drop
delete from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;

-- name: remember
insert into matrixsched_attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
values (:shard_id, :action_id, :action_guid, :attempt, :tick, :outcome, :error, :claimed_by, :claimed_at, {now})
on conflict do nothing;

-- name: remember_late
-- Attempts at earlier versions of an action that is looked at: their leases are over.
insert into matrixsched_attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
select s.shard_id, s.action_id, s.action_guid, s.attempt, 0, 'superseded', 'its worker did not report back', s.claimed_by,
       s.claimed_at, {now}
  from matrixsched_processing_queue s
 where s.shard_id = :shard_id and s.action_id = :action_id and s.action_guid <> :action_guid
   and s.claimed_by is not null and s.scheduled_at <= {now}
on conflict do nothing;

-- name: drop_late
delete from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :action_id and action_guid <> :action_guid
   and claimed_by is not null and scheduled_at <= {now};

-- name: settle
update matrixsched_processing_queue
   set scheduled_at = :scheduled_at, lane = :lane, interrupted = :interrupted, attempt = :attempt,
       claimed_by = :claimed_by, claimed_at = :claimed_at, rescheduled_by = :sync_guid, rescheduled_at = {now}
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;
