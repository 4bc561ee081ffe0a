-- relist_lanes (distributed). Promise: as that of PostgreSQL: by whoever has the turn, in one transaction. What is in the lanes is
-- read over the shards before it is said when to look at them; which lanes are listed is read before that. So a lane is unlisted
-- only if it was listed before it was seen to be empty, and nobody said anew when to look at it.

-- name: turn
select c.name, c.done_at > {now} as was_set_back
  from matrixsched.chores c
 where c.name = 'lanes' and (c.done_at is null or c.done_at <= {now} - cast(:every as interval) or c.done_at > {now})
   /* pause point: relist_lock */
   for update skip locked;

-- name: listed
select h.lane, h.ready_at from matrixsched.held_lanes h;

-- name: heads
-- Of each lane when its first row is due, and whether any may go now.
select p.lane, min(p.scheduled_at) as scheduled_at,
       bool_or(p.scheduled_at <= {now} and (p.expires_at is null or p.expires_at > {now})) as is_open
  from matrixsched.processing_queue p
 where p.lane >= 'limit|' and p.lane < 'quota}'
 group by p.lane;

-- name: lanes
with heads as materialized (
    select h.lane, h.scheduled_at, h.is_open
      from unnest(cast(:lanes as text[]), cast(:scheduled_at as timestamptz[]), cast(:open as boolean[]))
           as h (lane, scheduled_at, is_open)
),
unlisted as materialized (
    select c.lane, c.scheduled_at, string_to_array(c.lane, '|') as parts
      from heads c
     where not exists (select from matrixsched.held_lanes l where l.lane = c.lane)
),
listed as (
    insert into matrixsched.held_lanes (lane, priority, handler, ready_at)
    select lane, cast(parts[array_length(parts, 1) - 2] as integer), parts[array_length(parts, 1)],
           greatest(scheduled_at, {now})
      from unlisted
     order by lane collate "C"
    on conflict do nothing
),
mistaken as materialized (
    select h.lane, case when h.ready_at > {now} then {now}
                        else least(greatest(c.scheduled_at, {now} + interval '1 second'),
                                   {now} + cast(:look_again as interval)) end as ready_at
      from heads c
      join matrixsched.held_lanes h on h.lane = c.lane
     where h.ready_at > {now} + cast(:look_again as interval)
        or h.ready_at > {now} and cast(:was_set_back as boolean)
        or h.ready_at <= {now} and not c.is_open
     order by h.lane
       for update of h skip locked
),
put_off as (
    update matrixsched.held_lanes h set ready_at = m.ready_at from mistaken m where h.lane = m.lane
),
empty as materialized (
    select h.lane
      from unnest(cast(:empty as text[]), cast(:empty_ready_at as timestamptz[])) as e (lane, ready_at)
      join matrixsched.held_lanes h on h.lane = e.lane and h.ready_at = e.ready_at
     order by h.lane
       for update of h skip locked
),
gone as (
    delete from matrixsched.held_lanes where lane in (select lane from empty)
)
select (select count(*) from unlisted) as listed;

-- name: buckets
-- Without a rate of their own: keys that are full again, slow-downs that are over.
with buckets as materialized (
    select l.name
      from matrixsched.limits l
     where l.name <> 'key:*' and l.requests is null
       and (l.slow_until is null or l.slow_until <= {now})
       and l.next_slot_ns < cast(extract(epoch from {now} - interval '1 hour') * 1000000000 as bigint)
                            - coalesce((select cast(k.pool as numeric) * k.per_us * 1000 / k.requests
                                          from matrixsched.limits k where k.name = 'key:*'), 0)
     order by l.name
     limit 1000
       for update skip locked
)
delete from matrixsched.limits where name in (select name from buckets);

-- name: done
update matrixsched.chores set done_at = {now} where name = 'lanes';
