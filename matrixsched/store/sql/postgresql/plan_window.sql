-- plan_window (postgresql). Promise: a window of the quota is planned once for the whole fleet. One planner at a time;
-- nobody waits for it, and one that is frozen loses its turn, and all it wrote, with its transaction.

-- name: turn
select c.name
  from matrixsched.chores c
 where c.name = 'plan'
   /* pause point: plan_turn */
   for update skip locked;

-- name: state
select {now} as now, s.settings,
       (select w.begins_at from matrixsched.quota_windows w
         where w.begins_at <= {now} order by w.begins_at desc limit 1) as previous_begins_at,
       (select w.ends_at from matrixsched.quota_windows w
         where w.begins_at <= {now} order by w.begins_at desc limit 1) as previous_ends_at,
       (select w.begins_at from matrixsched.quota_windows w
         where w.begins_at > {now} order by w.begins_at limit 1) as next_begins_at,
       (select c.done_at from matrixsched.chores c where c.name = 'plan') as asked_at
  from matrixsched.quota_settings s;

-- name: unsettled
-- Whether messages of templates are due that are not before their gates yet; among the first rows of each shard.
select true as unsettled
  from matrixsched.shard_locks l
 where coalesce(
           (select true from (select i.lane, i.scheduled_at from matrixsched.incoming_queue i
                               where i.shard_id = l.shard_id
                               order by i.created_at limit cast(:rows_max as integer)) i
             where i.lane >= 'quota|' and i.lane < 'quota}' and i.scheduled_at <= {now}
             limit 1),
           (select true from (select p.action_id, p.action_guid from matrixsched.processing_queue p
                               where p.shard_id = l.shard_id and p.lane = 'coming' and p.scheduled_at <= {now}
                               order by p.scheduled_at limit cast(:rows_max as integer) / 10) p
             cross join lateral (select from matrixsched.scheduled_actions a
                                  where a.shard_id = l.shard_id and a.action_id = p.action_id
                                    and a.action_guid = p.action_guid and a.state = 'live' and a.template is not null
                                 offset 0) a
             limit 1))
 limit 1;

-- name: put_off
update matrixsched.chores set done_at = {now} where name = 'plan';

-- name: served
select distinct g.template, g.priority, g.last_served_at
  from matrixsched.quota_grants g
 where g.begins_at = cast(:begins_at as timestamptz);

-- name: due
with recursive lanes (lane, scheduled_at) as ( -- the head of each lane, one probe of the index for each
    (select p.lane, p.scheduled_at from matrixsched.processing_queue p
      where p.lane >= 'quota|' and p.lane >= 'limit|' and p.lane < 'quota}'
      order by p.lane, p.scheduled_at limit 1)
    union all
    select n.lane, n.scheduled_at
      from lanes c
     cross join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                          where p.lane > c.lane and p.lane >= 'limit|' and p.lane < 'quota}'
                          order by p.lane, p.scheduled_at limit 1) n
)
select lane from lanes where scheduled_at <= {now};

-- name: count
with kinds as materialized (
    select l.number, array_agg(l.lane) as lanes
      from unnest(cast(:lanes as text[]), cast(:numbers as integer[])) as l (lane, number)
     group by l.number
)
select k.number, c.waiting
  from kinds k
 cross join lateral (select (cast(:most as bigint[]))[k.number] as most) m
 cross join lateral (
       select count(*) as waiting
         from (select
                 from unnest(k.lanes) as l (lane)
                cross join lateral (select from matrixsched.processing_queue p
                                     where p.lane = l.lane and p.lane >= 'limit|' and p.lane < 'quota}'
                                       and p.scheduled_at <= {now}
                                       and (p.expires_at is null or p.expires_at > {now})
                                     limit m.most) w
                limit m.most) counted) c;

-- name: write
-- A plan that comes after the end of its window is not written: nothing could start by it, and who it calls served was not.
with planned as (
    insert into matrixsched.quota_windows (begins_at, ends_at, planned_at, planned_by, max_to_send, templates)
    select cast(:begins_at as timestamptz), cast(:ends_at as timestamptz), {now}, cast(:planned_by as text),
           cast(:max_to_send as bigint), cast(:count as integer)
     where {now} < cast(:ends_at as timestamptz)
    returning begins_at
),
shares as (
    insert into matrixsched.quota_grants (begins_at, template, priority, inside, zones, waiting, granted,
                                          last_served_at)
    select p.begins_at, g.*
      from planned p
     cross join unnest(cast(:templates as text[]), cast(:priorities as integer[]), cast(:insides as boolean[]),
                       cast(:zones as text[]), cast(:waiting as bigint[]), cast(:granted as bigint[]),
                       cast(:last_served_at as timestamptz[])) as g
),
served as materialized (
    select t.name
      from matrixsched.templates t
     where t.name = any (cast(:served as text[]))
     order by t.name
       for no key update skip locked
),
noted as (
    update matrixsched.templates t
       set last_served_at = g.served_at
      from planned p
     cross join served s
      join unnest(cast(:served as text[]), cast(:served_at as timestamptz[])) as g (name, served_at) on g.name = s.name
     where t.name = s.name
)
select begins_at from planned;

-- name: lanes
with given as materialized (
    select *
      from unnest(cast(:lanes as text[]), cast(:lane_priorities as integer[]), cast(:handlers as text[]),
                  cast(:ready_at as timestamptz[])) as g (lane, priority, handler, ready_at)
),
missing as (
    insert into matrixsched.held_lanes (lane, priority, handler, ready_at)
    select g.lane, g.priority, g.handler, g.ready_at
      from given g
     where not exists (select from matrixsched.held_lanes h where h.lane = g.lane)
     order by g.lane collate "C"
    on conflict do nothing
),
listed as materialized (
    select h.lane, g.ready_at
      from given g
      join matrixsched.held_lanes h on h.lane = g.lane
     where h.ready_at <> g.ready_at
     order by h.lane
       for update of h skip locked
)
update matrixsched.held_lanes h set ready_at = l.ready_at from listed l where h.lane = l.lane;

-- name: forget
with grants as materialized (
    select g.begins_at, g.template, g.priority, g.inside
      from matrixsched.quota_grants g
     where g.begins_at < {now} - cast(:keep as interval)
     order by g.begins_at
     limit cast(:forget_max as integer)
       for update skip locked
),
windows as materialized (
    select w.begins_at
      from matrixsched.quota_windows w
     where w.begins_at < {now} - cast(:keep as interval)
     order by w.begins_at
     limit cast(:forget_max as integer)
       for update skip locked
),
gone as (
    delete from matrixsched.quota_grants q
     using grants g
     where q.begins_at = g.begins_at and q.template = g.template and q.priority = g.priority and q.inside = g.inside
)
delete from matrixsched.quota_windows q using windows w where q.begins_at = w.begins_at;
