-- claim (postgresql). Promise: before a handler is called, its row is rescheduled to the end of the attempt's lease; so a
-- crash needs no cleaning up. Writes only for the holder of the shard (fence); never waits.
--   dead     the action has another guid or is finished                → deleted
--   blocked  another version of the action is being run                → due when that attempt's lease ends, at the latest
--                                                                      in a lease from now: clocks are set back;
--                                                                      before a gate it is to be put then
--   busy     as blocked, but that attempt's row is being written now   → left as it is
--   foreign  its handler is not known here                             → parked for workers that know it
--   gated    it has to pass a gate, as events never do                 → to its gated lane; told by the lanes' names
--   suspect  interrupted twice or more                                 → to the suspects' lane; from a gated lane beyond
--                                                                      :suspect_room, lest it hides the others there
--   waiting  it could run, but there is no room beyond :claim_limit    → left as it is
--   claimed  all others: attempt + 1, returned with the action
-- Claimed rows of other versions whose leases are over go, lest their attempts are prolonged beside the one at this version.
-- At most :takes of each of :lanes. With :gated these are gated lanes, whose gates the caller holds open in the same
-- transaction; rows that expired wait there for `expire_waiting`, lest they take the place of others.
-- A row whose claimed_by is still set when it is due was interrupted. One row comes back even if nothing was claimed.
with fence as materialized (
    select l.shard_id
      from matrixsched.shard_locks l
     where l.shard_id = cast(:shard_id as integer) and l.last_lock_guid = cast(:sync_guid as uuid) and l.locked
       and {in_time}
       -- Looking for work here costs nothing; a row lock taken in vain costs a flush of the WAL.
       and (select true from unnest(cast(:lanes as text[])) as s (lane)
             cross join lateral (select from matrixsched.processing_queue q
                                  where q.shard_id = cast(:shard_id as integer) and q.lane = s.lane and q.lane >= ''
                                    and q.scheduled_at <= {now}
                                  order by q.scheduled_at limit 1) w
             limit 1)
       /* pause point: claim_fence */
       for key share skip locked
),
due as materialized (
    select p.*
      from unnest(cast(:lanes as text[]), cast(:takes as integer[])) as s (lane, take)
     cross join lateral (
           select p.shard_id, p.action_id, p.action_guid, p.lane, p.attempt, p.scheduled_at as due_at, p.claimed_by,
                  p.claimed_at, p.interrupted + cast(p.claimed_by is not null as integer) as interrupted
             from matrixsched.processing_queue p
            where p.shard_id = cast(:shard_id as integer) and p.lane = s.lane and p.lane >= '' and p.scheduled_at <= {now}
              and exists (select from fence)
              and (not cast(:gated as boolean)
                   or p.expires_at is null or p.expires_at > {now})
            order by p.scheduled_at, p.expires_at
            limit s.take
              for update skip locked) p
),
suspects as materialized ( -- of a gated lane, as many as there is room for; their order is that of `due`
    select action_guid from due
     where cast(:gated as boolean) and interrupted >= cast(:suspect_from as integer)
     limit cast(:suspect_room as integer)
),
limited as materialized ( -- what all actions, or all of a handler, must pass
    select name from matrixsched.limits where name = 'global' or name >= 'handler:' and name < 'handler;'
),
siblings as materialized ( -- other versions of these actions, claimed as the snapshot shows them: hardly ever any
    select s.*
      from due d
     cross join lateral (select {place of s} as place, s.shard_id, s.action_id, s.action_guid
                           from matrixsched.processing_queue s
                          where s.shard_id = {d.shard_id} and s.action_id = d.action_id
                            and s.action_guid <> d.action_guid
                            and s.claimed_by is not null
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
found as materialized (
    select d.*, a.version, a.handler, a.payload, a.terms, a.priority, a.template, a.zone, a.expires_at, a.tick,
           a.tick_at, a.tick_failures, r.scheduled_at as blocked_until,
           case when a.action_guid is null then 'dead'
                when r.scheduled_at is not null then 'blocked'
                when r.is_written then 'busy'
                when not cast(:gated as boolean) and a.handler <> all (cast(:handlers as text[])) then 'foreign'
                when not cast(:gated as boolean) and a.lane <> 'event'
                     and (a.lane <> ''
                          or exists (select from limited where name in ('global', 'handler:' || a.handler)))
                    then 'gated'
                when d.interrupted < cast(:suspect_from as integer) or d.lane like 'handler!%' then 'claimed'
                when d.action_guid in (select action_guid from suspects) then 'claimed'
                else 'suspect' end as finding,
           case when a.lane <> '' then a.lane
                else 'limit|' || a.priority || '||' || replace(replace(a.handler, '%', '%25'), '|', '%7C')
                end as gated_lane
      from due d
      left join lateral (select a.* from matrixsched.scheduled_actions a -- one by one, however many are expected
                          where a.shard_id = {d.shard_id} and a.action_id = d.action_id
                            and a.action_guid = d.action_guid and a.state = 'live'
                         offset 0) a on true
      left join running r on r.action_id = d.action_id
),
judged as materialized (
    select f.*,
           case when f.finding = 'claimed'
                     and row_number() over (partition by f.finding order by f.due_at) > cast(:claim_limit as integer)
                then 'waiting' else f.finding end as verdict
      from found f
),
dropped as (
    delete from matrixsched.processing_queue p
     using judged j
     where j.verdict = 'dead'
       and p.shard_id = cast(:shard_id as integer) and p.action_id = j.action_id and p.action_guid = j.action_guid
),
over as materialized ( -- claimed, but their leases are over and the live version may run: they must not be prolonged
    select m.* from met m
     where not m.runs and m.ctid = m.place and m.action_guid not in (select action_guid from due)
       and m.action_id in (select action_id from judged where verdict not in ('dead', 'waiting'))
),
ended as ( -- by place: these rows are locked
    delete from matrixsched.processing_queue where {place in over by action_id, action_guid}
),
remembered as (
    insert into matrixsched.attempt_history
           (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
    select {shard_id}, action_id, action_guid, attempt, coalesce(tick, 0),
           case verdict when 'dead' then 'superseded' else 'interrupted' end, 'its worker did not report back',
           claimed_by, claimed_at, {now}
      from judged
     where claimed_by is not null and verdict not in ('busy', 'waiting')
    union all
    select {shard_id}, action_id, action_guid, attempt, 0, 'superseded', 'its worker did not report back', claimed_by,
           claimed_at, {now}
      from over
    on conflict do nothing
),
settled as (
    update matrixsched.processing_queue p
       set scheduled_at = case j.verdict when 'claimed' then {now} + cast(:attempt_lease as interval)
                                         when 'blocked' then least(j.blocked_until, {now} + cast(:attempt_lease as interval))
                                         else p.scheduled_at end,
           lane = case j.verdict when 'foreign' then 'handler:' || j.handler
                                 when 'suspect' then 'handler!' || j.handler
                                 when 'gated' then j.gated_lane
                                 when 'blocked' then case when cast(:gated as boolean) then '' else p.lane end
                                 else p.lane end,
           attempt = p.attempt + cast(j.verdict = 'claimed' as integer),
           interrupted = j.interrupted,
           claimed_by = case j.verdict when 'claimed' then cast(:sync_guid as uuid) end,
           claimed_at = case j.verdict when 'claimed' then {now} else p.claimed_at end,
           rescheduled_by = cast(:sync_guid as uuid),
           rescheduled_at = {now}
      from judged j
     where j.verdict in ('claimed', 'blocked', 'foreign', 'gated', 'suspect')
       and p.shard_id = cast(:shard_id as integer) and p.action_id = j.action_id and p.action_guid = j.action_guid
    returning j.verdict, p.lane, j.action_id, j.action_guid, p.attempt, p.claimed_at, j.due_at, j.version, j.handler, j.payload,
              j.terms, j.priority, j.template, j.zone, j.expires_at, j.tick, j.tick_at, j.tick_failures, j.interrupted
)
select (select count(*) from due) as seen, {now} as now,
       unclaimed.gated_lanes, unclaimed.parked, s.lane, s.action_id, s.action_guid, s.attempt, s.claimed_at, s.due_at, s.version, s.handler, s.payload, s.terms,
       s.priority, s.template, s.zone, s.expires_at, s.tick, s.tick_at, s.tick_failures, s.interrupted
  from (select array_agg(distinct lane) filter (where verdict = 'gated') as gated_lanes,
               coalesce(bool_or(verdict = 'foreign'), false) as parked
          from settled) unclaimed
  left join settled s on s.verdict = 'claimed';
