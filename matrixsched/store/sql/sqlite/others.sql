-- others (sqlite). Promise: the live actions without a template of a shard that are due by :until, counted by priority,
-- handler, where :keyed says so the lane in whose name their key stands, and the minutes by which they are due and expired.
-- It looks at no more than :limit rows that wait before limits, the lower priorities first, :limit that wait for their time,
-- the earliest first, and :limit that are new; `unseen_from` says from when on there may be more that are due.
-- Attempts under way are left out: their slots are taken. One row comes back even if there are none.
-- Differs from postgresql/others.sql: times are integers, which are rounded by division; plain joins.
with held as materialized (
    select p.action_id, p.action_guid, p.scheduled_at
      from matrixsched_processing_queue p
     where p.shard_id = :shard_id and p.lane >= 'limit|' and p.lane < 'limit}'
       and (p.claimed_by is null or p.scheduled_at <= {now})
     order by p.lane, p.scheduled_at
     limit :limit
),
early as materialized (
    select p.action_id, p.action_guid, p.scheduled_at
      from matrixsched_processing_queue p
     where p.shard_id = :shard_id and p.lane = '' and p.scheduled_at <= :until
       and (p.claimed_by is null or p.scheduled_at <= {now})
     order by p.scheduled_at
     limit :limit
),
new as materialized (
    select i.action_id, i.action_guid, i.scheduled_at
      from matrixsched_incoming_queue i
     where i.shard_id = :shard_id
     order by i.created_at
     limit :limit
),
counted as (
    select a.priority, a.handler, iif(:keyed, a.lane, '') as lane,
           iif(q.scheduled_at <= {now}, {now}, (q.scheduled_at + 59999999) / 60000000 * 60000000) as due_at,
           iif(a.expires_at <= {now}, {now}, (a.expires_at + 59999999) / 60000000 * 60000000) as expires_at,
           count(*) as messages
      from (select * from held union all select * from early union all select * from new) q
     cross join matrixsched_scheduled_actions a
             on a.shard_id = :shard_id and a.action_id = q.action_id and a.action_guid = q.action_guid
            and a.state = 'live' and a.template is null and q.scheduled_at <= :until
            and a.lane <> 'event' -- which takes no slot
     group by 1, 2, 3, 4, 5
)
select c.*,
       case when (select count(*) from held) >= :limit or (select count(*) from new) >= :limit
            then {now}
            else (select max(scheduled_at) from early having count(*) >= :limit) end as unseen_from
  from (select 1) as always
  left join counted c on true;
