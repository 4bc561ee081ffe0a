-- spend (distributed). Promise: as that of PostgreSQL. It was looked before in which of the emptied lanes nothing is due in any
-- shard: a row that comes into one at this very moment is found by `relist_lanes`, as one that comes after it.

-- name: filled
-- Of these lanes those in which something is due.
select distinct k.lane
  from matrixsched.shard_locks l
 cross join unnest(cast(:lanes as text[])) as k (lane)
 where (select true from matrixsched.processing_queue p
         where p.shard_id = l.shard_id and p.lane = k.lane and p.lane >= '' and p.scheduled_at <= {now}
         order by p.scheduled_at limit 1);

-- name: slots
update matrixsched.limits l
   set next_slot_ns = s.next_slot_ns
  from unnest(cast(:limits as text[]), cast(:next_slots as bigint[])) as s (name, next_slot_ns)
 where l.name = s.name;

-- name: grants
update matrixsched.quota_grants g
   set used = s.used
  from unnest(cast(:templates as text[]), cast(:priorities as integer[]), cast(:insides as boolean[]),
              cast(:used as bigint[])) as s (template, priority, inside, used)
 where g.begins_at = cast(:begins_at as timestamptz) and g.template = s.template and g.priority = s.priority
   and g.inside = s.inside;

-- name: lanes
with noted as materialized (
    select *
      from unnest(cast(:lanes as text[]), cast(:lane_priorities as integer[]), cast(:handlers as text[]),
                  cast(:ready_at as timestamptz[])) as n (lane, priority, handler, ready_at)
),
listed as materialized (
    select h.lane
      from matrixsched.held_lanes h
     where h.lane = any (cast(:lanes as text[])) or h.lane = any (cast(:emptied as text[]))
     order by h.lane
       for update skip locked
),
unlisted as (
    delete from matrixsched.held_lanes h
     where h.lane = any (cast(:emptied as text[])) and h.lane in (select lane from listed)
),
renewed as (
    update matrixsched.held_lanes h
       set ready_at = n.ready_at
      from noted n
     where h.lane = n.lane and h.ready_at <> n.ready_at and h.lane in (select lane from listed)
)
insert into matrixsched.held_lanes (lane, priority, handler, ready_at)
select n.lane, n.priority, n.handler, n.ready_at
  from noted n
 where not exists (select from matrixsched.held_lanes h where h.lane = n.lane)
   /* pause point: spend_lanes */
 order by n.lane collate "C" -- as everybody does who inserts several
on conflict do nothing;
