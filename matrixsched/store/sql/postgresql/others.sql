-- others (postgresql). Promise: the live actions without a template of a shard that are due by :until, counted by priority,
-- handler, where :keyed says so the lane in whose name their key stands, and the minutes by which they are due and expired.
-- It looks at no more than :limit rows that wait before limits, the lower priorities first, :limit that wait for their time,
-- the earliest first, and :limit that are new; `unseen_from` says from when on there may be more that are due.
-- Attempts under way are left out: their slots are taken. Locks nothing. One row comes back
-- even if there are none.
with held as materialized (
    select p.action_id, p.action_guid, p.scheduled_at
      from matrixsched.processing_queue p
     where p.shard_id = cast(:shard_id as integer) and p.lane >= 'limit|' and p.lane < 'limit}'
       and (p.claimed_by is null or p.scheduled_at <= {now})
     order by p.lane, p.scheduled_at
     limit cast(:limit as integer)
),
early as materialized (
    select p.action_id, p.action_guid, p.scheduled_at
      from matrixsched.processing_queue p
     where p.shard_id = cast(:shard_id as integer) and p.lane = '' and p.scheduled_at <= cast(:until as timestamptz)
       and (p.claimed_by is null or p.scheduled_at <= {now})
     order by p.scheduled_at
     limit cast(:limit as integer)
),
new as materialized (
    select i.action_id, i.action_guid, i.scheduled_at
      from matrixsched.incoming_queue i
     where i.shard_id = cast(:shard_id as integer)
     order by i.created_at
     limit cast(:limit as integer)
),
counted as (
    select a.priority, a.handler, case when cast(:keyed as boolean) then a.lane else '' end as lane,
           case when q.scheduled_at <= {now} then {now}
                else date_bin(interval '1 minute', q.scheduled_at + interval '59.999999 s', timestamptz 'epoch')
                end as due_at,
           case when a.expires_at <= {now} then {now}
                else date_bin(interval '1 minute', a.expires_at + interval '59.999999 s', timestamptz 'epoch')
                end as expires_at,
           count(*) as messages
      from (select * from held union all select * from early union all select * from new) q
     cross join lateral (select a.priority, a.handler, a.lane, a.expires_at
                           from matrixsched.scheduled_actions a -- one by one, however many are expected
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = q.action_id
                            and a.action_guid = q.action_guid and a.state = 'live' and a.template is null
                            and a.lane <> 'event' -- which takes no slot
                            and q.scheduled_at <= cast(:until as timestamptz)
                         offset 0) a
     group by 1, 2, 3, 4, 5
)
select c.*,
       case when (select count(*) from held) >= cast(:limit as integer) or (select count(*) from new) >= cast(:limit as integer)
            then {now}
            else (select max(scheduled_at) from early having count(*) >= cast(:limit as integer)) end as unseen_from
  from (select) as always
  left join counted c on true;
