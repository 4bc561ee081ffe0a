-- find_in_slice (postgresql). Promise: tells what is wrong with the actions of a shard from the id :first to the id :last, and
-- with their rows; of the first one with the versions from :from_guid on, so that even one of very many is told of in parts.
-- Each statement judges its faults in one snapshot, so that nothing is found beside those who work but what is
-- really there; it locks and writes nothing. Rows are gathered by version and counted, or looked up by their key: no plan,
-- whatever the database knows of the tables, reads a table once for each row of another.

-- name: actions
-- The next :size of them.
select a.action_id
  from matrixsched.scheduled_actions a
 where a.shard_id = cast(:shard_id as integer)
   and a.action_id >= cast(:first as text) and a.action_id <= cast(:last as text)
 order by a.action_id
 limit cast(:size as integer);

-- name: versions
-- A live action has exactly one row of its version; what else has rows is litter, but for attempts under way.
-- No failures in a row are more than all.
with seen as (
    select a.action_id, a.action_guid, 1 as actions, cast(a.state = 'live' as integer) as live, 0 as incoming,
           0 as processing, 0 as unwanted, cast(a.consecutive_failures > a.failed as integer) as miscounted
      from matrixsched.scheduled_actions a
     where a.shard_id = cast(:shard_id as integer)
       and (a.action_id, a.action_guid) >= (cast(:first as text), cast(:from_guid as uuid))
       and a.action_id <= cast(:last as text)
    union all
    select i.action_id, i.action_guid, 0, 0, 1, 0, 1, 0
      from matrixsched.incoming_queue i
     where i.shard_id = cast(:shard_id as integer)
       and (i.action_id, i.action_guid) >= (cast(:first as text), cast(:from_guid as uuid))
       and i.action_id <= cast(:last as text)
    union all
    select p.action_id, p.action_guid, 0, 0, 0, 1,
           cast(p.claimed_by is null or p.scheduled_at <= {now} as integer), 0
      from matrixsched.processing_queue p
     where p.shard_id = cast(:shard_id as integer)
       and (p.action_id, p.action_guid) >= (cast(:first as text), cast(:from_guid as uuid))
       and p.action_id <= cast(:last as text)
),
versions as materialized (
    select action_id, action_guid, sum(actions) as actions, sum(live) as live, sum(incoming) as incoming,
           sum(processing) as processing, sum(unwanted) as unwanted, sum(miscounted) as miscounted
      from seen
     group by action_id, action_guid
    having sum(live) = 1 and sum(incoming) + sum(processing) <> 1 or sum(live) = 0 and sum(unwanted) > 0
        or sum(miscounted) > 0
     order by action_id collate "C", action_guid
     limit cast(:limit as integer)
)
select case when v.live = 1 and v.incoming + v.processing = 0 then 'lost'
            when v.live = 1 then 'twice'
            when v.actions = 1 then 'finished'
            when (select true from matrixsched.scheduled_actions a
                   where a.shard_id = cast(:shard_id as integer) and a.action_id = v.action_id) then 'dead'
            else 'orphan' end as fault,
       v.action_id as subject, cast(v.action_guid as text) as guid,
       v.incoming || ' incoming, ' || v.processing || ' processing' as seen
  from versions v
 where v.live = 1 and v.incoming + v.processing <> 1 or v.live = 0 and v.unwanted > 0
union all
select 'counters', v.action_id, cast(v.action_guid as text), 'more failures in a row than in all'
  from versions v
 where v.miscounted > 0
 order by subject;

-- name: rows
-- The row of a live action is due when the action is, or is put off by no more than a lease, and never before it: outcomes give
-- both their next time, a row that is given back is due when it was. It expires when the action does, and is in a lane in which it
-- is looked for.
with judged as (
    select p.action_id, p.action_guid, p.lane, p.scheduled_at,
           p.claimed_by is not null and p.scheduled_at > {now} + cast(:reach as interval) as is_stranded,
           a.action_guid is not null -- or the greatest of two times would be the other one
           and (p.claimed_by is null and (p.scheduled_at < a.scheduled_at
                                          or p.scheduled_at > greatest(a.scheduled_at, {now} + cast(:reach as interval)))
                or p.expires_at is distinct from a.expires_at) as is_untimely,
           a.action_guid is not null
           and p.lane not in ('', 'coming', 'event', 'handler:' || a.handler, 'handler!' || a.handler)
           and not (p.lane >= 'limit|' and p.lane < 'quota}'
                    and p.lane = case when a.lane <> '' then a.lane
                                      else 'limit|' || a.priority || '||'
                                           || replace(replace(a.handler, '%', '%25'), '|', '%7C') end) as is_unread
      from matrixsched.processing_queue p
      left join lateral (select a.action_guid, a.scheduled_at, a.expires_at, a.lane, a.handler, a.priority
                           from matrixsched.scheduled_actions a
                          where a.shard_id = {p.shard_id} and a.action_id = p.action_id
                            and a.action_guid = p.action_guid and a.state = 'live'
                         offset 0) a on true
     where p.shard_id = cast(:shard_id as integer)
       and (p.action_id, p.action_guid) >= (cast(:first as text), cast(:from_guid as uuid))
       and p.action_id <= cast(:last as text)
),
wrong as materialized (
    select * from judged where is_stranded or is_untimely or is_unread
),
faults as (
    select 'lease' as fault, action_id, action_guid, 'until ' || scheduled_at as seen from wrong where is_stranded
    union all
    select 'time', action_id, action_guid, 'processing, due at ' || scheduled_at from wrong where is_untimely
    union all
    select 'lane', action_id, action_guid, 'in ' || lane from wrong where is_unread
    union all
    select 'time', i.action_id, i.action_guid, 'incoming, due at ' || i.scheduled_at
      from matrixsched.incoming_queue i
     cross join lateral (select a.scheduled_at, a.expires_at
                           from matrixsched.scheduled_actions a
                          where a.shard_id = {i.shard_id} and a.action_id = i.action_id
                            and a.action_guid = i.action_guid and a.state = 'live'
                         offset 0) a
     where i.shard_id = cast(:shard_id as integer)
       and (i.action_id, i.action_guid) >= (cast(:first as text), cast(:from_guid as uuid))
       and i.action_id <= cast(:last as text)
       and (i.scheduled_at <> a.scheduled_at or i.expires_at is distinct from a.expires_at)
)
select fault, action_id as subject, cast(action_guid as text) as guid, seen
  from faults
 order by action_id collate "C", action_guid, fault
 limit cast(:limit as integer);

-- name: history
-- A failure is counted where it is remembered; an interruption is counted in the row first, in the action with the next outcome.
-- Both are forgotten after a while, so that the counters say more, and never less.
with remembered as materialized (
    select h.action_id, h.action_guid,
           sum(cast(h.outcome in ('failed', 'timed_out') as integer)) as failed,
           sum(cast(h.outcome = 'interrupted' as integer)) as interrupted
      from matrixsched.attempt_history h
     where h.shard_id = cast(:shard_id as integer)
       and h.action_id >= cast(:first as text) and h.action_id <= cast(:last as text)
     group by h.action_id, h.action_guid
),
found as materialized (
    select r.action_id, r.action_guid, r.failed, r.interrupted, a.action_guid as present_guid,
           a.failed as counted_failed, a.interrupted + coalesce(p.interrupted, 0) as counted_interrupted
      from remembered r
      left join lateral (select a.action_guid, a.failed, a.interrupted
                           from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = r.action_id
                         offset 0) a on true
      left join lateral (select p.interrupted
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = r.action_id
                            and p.action_guid = r.action_guid
                         offset 0) p on true
),
faults as (
    select 'counters' as fault, f.action_id, cast(f.action_guid as text) as guid,
           'failed ' || f.counted_failed || ' of ' || f.failed || ', interrupted ' || f.counted_interrupted || ' of '
           || f.interrupted as seen
      from found f
     where f.present_guid = f.action_guid
       and (f.counted_failed < f.failed or f.counted_interrupted < f.interrupted)
    union all
    select 'forgotten', f.action_id, null, count(*) || ' versions'
      from found f
     where f.present_guid is null
     group by f.action_id
)
select fault, action_id as subject, guid, seen
  from faults
 order by action_id collate "C", fault
 limit cast(:limit as integer);
