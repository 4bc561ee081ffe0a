-- move (postgresql). Promise: every incoming row taken is gone; if its action is live, exactly one processing row stands
-- for it. Rows that are due, pass no gate and may run here are claimed in passing, at most :claim_limit of them, as `claim`
-- would. Events are taken and claimed first, or alone if :only_events. Those that have to pass one go to their gated lanes, told by name; what is not due waits in `coming`
-- if it has one, else ungated. Events pass none, and wait in a lane of their own, for whatever it may be. Earlier versions of its action that wait in processing go: an action that is moved often leaves no trail;
-- and those whose leases are over, lest their attempts are prolonged beside the one at this version.
-- Writes only for the holder of the shard (fence); never waits. One row comes back even if nothing was moved.
-- With :holder the shard is taken by the way, if nobody holds it and has held it since the statement began (`free`): what a
-- holder wrote meanwhile is not in this snapshot. A lock that was left behind, whose holder may yet write, is for `acquire_shard`.
with seen as materialized (
    select l.shard_id, l.last_lock_guid
      from matrixsched.shard_locks l
     where {now} < cast(:not_after as timestamptz) -- null without :holder
       and {in_time}
       and l.shard_id = cast(:shard_id as integer)
       and l.last_lock_guid <> cast(:sync_guid as uuid) -- or it was carried out already
       and (select true from matrixsched.incoming_queue q
             where q.shard_id = cast(:shard_id as integer)
             order by q.created_at limit 1)
),
free as materialized (
    select l.shard_id
      from matrixsched.shard_locks l
     where l.shard_id = {(select shard_id from seen)} and not l.locked
       and l.last_lock_guid = (select last_lock_guid from seen)
       /* pause point: move_take */
       for update skip locked
),
held as materialized (
    select l.shard_id
      from matrixsched.shard_locks l
     where cast(:holder as text) is null
       and l.shard_id = cast(:shard_id as integer) and l.last_lock_guid = cast(:sync_guid as uuid) and l.locked
       and {in_time}
       and (select true from matrixsched.incoming_queue q
             where q.shard_id = cast(:shard_id as integer)
             order by q.created_at limit 1)
       /* pause point: move_fence */
       for key share skip locked
),
took as (
    update matrixsched.shard_locks l
       set locked = true, last_lock_guid = cast(:sync_guid as uuid), last_locked_by = cast(:holder as text),
           last_processing_start_at = {now}, last_heartbeat_at = {now}
      from free f
     where l.shard_id = {f.shard_id}
    returning l.shard_id
),
fence as materialized ( -- read from what was taken: it is taken before anything is moved
    select shard_id from held
    union all
    select shard_id from took
),
events as materialized ( -- locked, as the others: a late twin of this very statement must not take them again
    select {place of i} as ctid, i.shard_id, i.created_at, i.action_id, i.action_guid, i.scheduled_at, i.expires_at
      from matrixsched.incoming_queue i
     where i.shard_id = cast(:shard_id as integer) and i.lane = 'event' and exists (select from fence)
     order by i.created_at
     limit cast(:move_limit as integer)
       for update skip locked
),
others as materialized (
    select {place of i} as ctid, i.shard_id, i.created_at, i.action_id, i.action_guid, i.scheduled_at, i.expires_at
      from matrixsched.incoming_queue i
     where i.shard_id = cast(:shard_id as integer) and i.lane <> 'event' and exists (select from fence)
     order by i.created_at
     limit case when cast(:only_events as boolean) then 0
                else cast(:move_limit as integer) - (select count(*) from events) end
       for update skip locked
),
taken as materialized (
    select * from events
    union all
    select * from others
),
gone as ( -- by place: these rows are locked, and incoming rows never change
    delete from matrixsched.incoming_queue where {place in taken by created_at, action_id, action_guid}
),
siblings as materialized ( -- other versions of these actions, claimed as the snapshot shows them: hardly ever any
    select s.*
      from taken t
     cross join lateral (select {place of s} as place, s.shard_id, s.action_id, s.action_guid
                           from matrixsched.processing_queue s
                          where s.shard_id = {t.shard_id} and s.action_id = t.action_id
                            and s.action_guid <> t.action_guid
                            and s.claimed_by is not null and t.scheduled_at <= {now}
                         offset 0) s
),
met as materialized ( -- as they are now; locked, so that none ends or is prolonged unseen meanwhile
    select b.place, b.action_id, b.action_guid, s.ctid, s.scheduled_at, s.scheduled_at > {now} as runs,
           s.shard_id, s.attempt, s.claimed_by, s.claimed_at
      from siblings b
      left join lateral (select {place of s} as ctid, s.shard_id, s.scheduled_at, s.attempt, s.claimed_by, s.claimed_at
                           from matrixsched.processing_queue s
                          where s.shard_id = {b.shard_id} and s.action_id = b.action_id and s.action_guid = b.action_guid
                            and s.claimed_by is not null
                            for update of s skip locked) s on true
),
running as materialized ( -- of each action until when another version is run, and whether somebody writes one now
    select action_id, max(scheduled_at) filter (where runs) as scheduled_at,
           bool_or(runs is null or not runs and ctid <> place) as is_written
      from met
     group by action_id
),
limited as materialized ( -- what all actions, or all of a handler, must pass
    select name from matrixsched.limits where name = 'global' or name >= 'handler:' and name < 'handler;'
),
judged as materialized (
    select t.shard_id, t.created_at, t.action_id, t.action_guid, t.scheduled_at, t.expires_at, a.version,
           a.revision, a.handler, a.payload, a.terms, a.priority, a.template, a.zone, a.tick, a.tick_at, a.tick_failures,
           r.scheduled_at as blocked_until,
           case when a.action_guid is null then 'dead'
                when t.scheduled_at > {now} then 'waiting'
                when r.scheduled_at is not null then 'blocked'
                when r.is_written then 'busy'
                when a.handler <> all (cast(:handlers as text[])) then 'foreign'
                when a.lane = 'event' then 'claimable'
                when a.lane <> '' or exists (select from limited where name in ('global', 'handler:' || a.handler))
                    then 'gated'
                else 'claimable' end as verdict,
           a.lane = 'event' as is_event,
           a.lane <> '' as has_gate,
           case when a.lane <> '' then a.lane
                else 'limit|' || a.priority || '||' || replace(replace(a.handler, '%', '%25'), '|', '%7C')
                end as gated_lane
      from taken t
      left join matrixsched.scheduled_actions a
        on a.shard_id = {t.shard_id} and a.action_id = t.action_id and a.action_guid = t.action_guid and a.state = 'live'
      left join running r on r.action_id = t.action_id
),
ranked as materialized (
    select j.*, j.verdict = 'claimable'
                and row_number() over (partition by j.verdict order by not j.is_event, j.scheduled_at)
                    <= cast(:claim_limit as integer) as claimed
      from judged j
     where j.verdict <> 'dead'
),
outdated as materialized ( -- another guid than the live one, in one snapshot with it; a new action has none
    select p.*
      from (select * from ranked where revision > 1) r
     cross join lateral (select {place of p} as ctid, p.action_id, p.action_guid
                           from matrixsched.processing_queue p
                          where p.shard_id = {r.shard_id} and p.action_id = r.action_id
                            and p.action_guid <> r.action_guid and p.claimed_by is null
                            for update of p skip locked) p
),
over as materialized ( -- claimed, but their leases are over and the live version may run: they must not be prolonged
    select m.* from met m
     where not m.runs and m.ctid = m.place and m.action_id in (select action_id from ranked)
),
dropped as ( -- by place; a row that changed since the snapshot is left to the sweep
    delete from matrixsched.processing_queue where {place in outdated, over by action_id, action_guid}
),
remembered as (
    insert into matrixsched.attempt_history
           (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
    select {shard_id}, action_id, action_guid, attempt, 0, 'superseded', 'its worker did not report back', claimed_by,
           claimed_at, {now}
      from over
    on conflict do nothing
),
moved as (
    insert into matrixsched.processing_queue
           (shard_id, action_id, action_guid, lane, scheduled_at, expires_at, attempt, interrupted, claimed_by,
            claimed_at, added_at, moved_by, moved_at, rescheduled_by, rescheduled_at)
    select {shard_id}, action_id, action_guid,
           case when verdict = 'foreign' then 'handler:' || handler
                when is_event then 'event'
                when verdict = 'gated' then gated_lane
                when verdict = 'waiting' and has_gate then 'coming'
                else '' end,
           case when claimed then {now} + cast(:attempt_lease as interval)
                when verdict = 'blocked' then least(blocked_until, {now} + cast(:attempt_lease as interval))
                else scheduled_at end,
           expires_at, cast(claimed as integer), 0,
           case when claimed then cast(:sync_guid as uuid) end, case when claimed then {now} end,
           created_at, cast(:sync_guid as uuid), {now},
           case when claimed then cast(:sync_guid as uuid) end, case when claimed then {now} end
      from ranked
    on conflict (shard_id, action_id, action_guid) do nothing
    returning action_guid
)
select (select count(*) from taken) as seen, exists (select from took) as took_shard, {now} as now,
       unclaimed.gated_lanes, unclaimed.parked, '' as lane, r.action_id, r.action_guid, 1 as attempt, {now} as claimed_at, r.scheduled_at as due_at, r.version, r.handler,
       r.payload, r.terms, r.priority, r.template, r.zone, r.expires_at, r.tick, r.tick_at, r.tick_failures,
       0 as interrupted
  from (select array_agg(distinct gated_lane) filter (where verdict = 'gated') as gated_lanes,
               coalesce(bool_or(verdict = 'foreign'), false) as parked
          from ranked) unclaimed
  left join ranked r on r.claimed and (r.action_guid in (select action_guid from moved)) is true;
