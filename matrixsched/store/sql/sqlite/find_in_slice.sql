-- find_in_slice (sqlite). Promise: tells what is wrong with the actions of a shard from the id :first to the id :last, and with
-- their rows, of the first one with the versions from :from_guid on, all of it in one snapshot, so that nothing is found beside those who work but what is really there; it writes
-- nothing. Rows are gathered by version and counted, or looked up by their key.
-- Differs from postgresql/find_in_slice.sql: all statements are of one read transaction.

-- name: actions
-- The next :size of them.
select a.action_id
  from matrixsched_scheduled_actions a
 where a.shard_id = :shard_id and a.action_id >= :first and a.action_id <= :last
 order by a.action_id
 limit :size;

-- name: versions
-- A live action has exactly one row of its version; what else has rows is litter, but for attempts under way.
-- No failures in a row are more than all.
with seen as (
    select a.action_id, a.action_guid, 1 as actions, a.state = 'live' as live, 0 as incoming, 0 as processing,
           0 as unwanted, a.consecutive_failures > a.failed as miscounted
      from matrixsched_scheduled_actions a
     where a.shard_id = :shard_id and (a.action_id, a.action_guid) >= (:first, :from_guid) and a.action_id <= :last
    union all
    select i.action_id, i.action_guid, 0, 0, 1, 0, 1, 0
      from matrixsched_incoming_queue i
     where i.shard_id = :shard_id and (i.action_id, i.action_guid) >= (:first, :from_guid) and i.action_id <= :last
    union all
    select p.action_id, p.action_guid, 0, 0, 0, 1, p.claimed_by is null or p.scheduled_at <= {now}, 0
      from matrixsched_processing_queue p
     where p.shard_id = :shard_id and (p.action_id, p.action_guid) >= (:first, :from_guid) and p.action_id <= :last
),
versions as materialized (
    select action_id, action_guid, sum(actions) as actions, sum(live) as live, sum(incoming) as incoming,
           sum(processing) as processing, sum(unwanted) as unwanted, sum(miscounted) as miscounted
      from seen
     group by action_id, action_guid
    having sum(live) = 1 and sum(incoming) + sum(processing) <> 1 or sum(live) = 0 and sum(unwanted) > 0
        or sum(miscounted) > 0
     order by action_id, action_guid
     limit :limit
)
select case when v.live = 1 and v.incoming + v.processing = 0 then 'lost'
            when v.live = 1 then 'twice'
            when v.actions = 1 then 'finished'
            when exists (select 1 from matrixsched_scheduled_actions a
                          where a.shard_id = :shard_id and a.action_id = v.action_id) then 'dead'
            else 'orphan' end as fault,
       v.action_id as subject, v.action_guid as guid,
       v.incoming || ' incoming, ' || v.processing || ' processing' as seen
  from versions v
 where v.live = 1 and v.incoming + v.processing <> 1 or v.live = 0 and v.unwanted > 0
union all
select 'counters', v.action_id, v.action_guid, 'more failures in a row than in all'
  from versions v
 where v.miscounted > 0
 order by subject;

-- name: rows
-- The row of a live action is due when the action is, or is put off by no more than a lease, and never before it: outcomes give
-- both their next time, a row that is given back is due when it was. It expires when the action does, and is in a lane in which it
-- is looked for.
with wrong as materialized (
    select * from (
        select p.action_id, p.action_guid, p.lane,
               strftime('%Y-%m-%d %H:%M:%S', p.scheduled_at / 1000000, 'unixepoch') as due_at,
               p.claimed_by is not null and p.scheduled_at > {now} + :reach as is_stranded,
               a.action_guid is not null
               and (p.claimed_by is null and (p.scheduled_at < a.scheduled_at
                                              or p.scheduled_at > max(a.scheduled_at, {now} + :reach))
                    or p.expires_at is not a.expires_at) as is_untimely,
               a.action_guid is not null
               and p.lane not in ('', 'coming', 'event', 'handler:' || a.handler, 'handler!' || a.handler)
               and not (p.lane >= 'limit|' and p.lane < 'quota}'
                        and p.lane = case when a.lane <> '' then a.lane
                                          else 'limit|' || a.priority || '||'
                                               || replace(replace(a.handler, '%', '%25'), '|', '%7C') end) as is_unread
          from matrixsched_processing_queue p
          left join matrixsched_scheduled_actions a
            on a.shard_id = p.shard_id and a.action_id = p.action_id and a.action_guid = p.action_guid
           and a.state = 'live'
         where p.shard_id = :shard_id and (p.action_id, p.action_guid) >= (:first, :from_guid) and p.action_id <= :last)
     where is_stranded or is_untimely or is_unread
),
faults as (
    select 'lease' as fault, action_id, action_guid, 'until ' || due_at as seen from wrong where is_stranded
    union all
    select 'time', action_id, action_guid, 'processing, due at ' || due_at from wrong where is_untimely
    union all
    select 'lane', action_id, action_guid, 'in ' || lane from wrong where is_unread
    union all
    select 'time', i.action_id, i.action_guid,
           'incoming, due at ' || strftime('%Y-%m-%d %H:%M:%S', i.scheduled_at / 1000000, 'unixepoch')
      from matrixsched_incoming_queue i
     cross join matrixsched_scheduled_actions a -- in this order: each is found by its key
     where i.shard_id = :shard_id and (i.action_id, i.action_guid) >= (:first, :from_guid) and i.action_id <= :last
       and a.shard_id = i.shard_id and a.action_id = i.action_id and a.action_guid = i.action_guid
       and a.state = 'live'
       and (i.scheduled_at <> a.scheduled_at or i.expires_at is not a.expires_at)
)
select fault, action_id as subject, action_guid as guid, seen
  from faults
 order by action_id, action_guid, fault
 limit :limit;

-- name: history
-- A failure is counted where it is remembered; an interruption is counted in the row first, in the action with the next outcome.
-- Both are forgotten after a while, so that the counters say more, and never less.
with remembered as materialized (
    select h.action_id, h.action_guid, sum(h.outcome in ('failed', 'timed_out')) as failed,
           sum(h.outcome = 'interrupted') as interrupted
      from matrixsched_attempt_history h
     where h.shard_id = :shard_id and h.action_id >= :first and h.action_id <= :last
     group by h.action_id, h.action_guid
),
found as materialized (
    select r.action_id, r.action_guid, r.failed, r.interrupted, a.action_guid as present_guid,
           a.failed as counted_failed, a.interrupted + coalesce(p.interrupted, 0) as counted_interrupted
      from remembered r
      left join matrixsched_scheduled_actions a on a.shard_id = :shard_id and a.action_id = r.action_id
      left join matrixsched_processing_queue p
        on p.shard_id = :shard_id and p.action_id = r.action_id and p.action_guid = r.action_guid
),
faults as (
    select 'counters' as fault, f.action_id, f.action_guid as guid,
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
 order by action_id, fault
 limit :limit;
