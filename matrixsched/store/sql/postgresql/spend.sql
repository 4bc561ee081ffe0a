-- spend (postgresql). Promise: the slots and grants that a claim of the same transaction took are taken, and it is noted when
-- each of these lanes is worth another look. Of :emptied lanes those are no longer listed in which nothing is due anywhere. Its rows were locked by `lock_limits` and `lock_grants` before.
with slots as (
    update matrixsched.limits l
       set next_slot_ns = s.next_slot_ns
      from unnest(cast(:limits as text[]), cast(:next_slots as bigint[])) as s (name, next_slot_ns)
     where l.name = s.name
),
grants as (
    update matrixsched.quota_grants g
       set used = s.used
      from unnest(cast(:templates as text[]), cast(:priorities as integer[]), cast(:insides as boolean[]),
                  cast(:used as bigint[])) as s (template, priority, inside, used)
     where g.begins_at = cast(:begins_at as timestamptz) and g.template = s.template and g.priority = s.priority
       and g.inside = s.inside
),
emptied as materialized (
    select h.lane
      from matrixsched.held_lanes h
     where h.lane = any (cast(:emptied as text[]))
       and not exists (select from matrixsched.processing_queue p
                        where p.lane = h.lane and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now})
     order by h.lane
       for update skip locked
),
unlisted as (
    delete from matrixsched.held_lanes where lane in (select lane from emptied)
)
insert into matrixsched.held_lanes as h (lane, priority, handler, ready_at)
select lane, priority, handler, ready_at
  from unnest(cast(:lanes as text[]), cast(:lane_priorities as integer[]), cast(:handlers as text[]),
              cast(:ready_at as timestamptz[])) as s (lane, priority, handler, ready_at)
 order by lane
on conflict (lane) do update
   set ready_at = excluded.ready_at
 where h.ready_at <> excluded.ready_at;
