-- relist_lanes (postgresql). Promise: every gated lane that has rows is listed, and no other. Done by one worker at a time, at
-- most once in :every; the others write nothing. It finds what a crash left unlisted: rows whose mover died before it could
-- say when to look at them, and attempts whose lease ended. A lane in which nothing may go, because it is not due or has expired, is put off,
-- lest it takes the place of others; none is put off for longer than :look_again. If the last time lies in the future, the
-- clock was set back: every lane is looked at anew.
-- Lanes are read by skipping through their index, one probe each.
with recursive turn as materialized (
    select c.name, c.done_at > {now} as was_set_back
      from matrixsched.chores c
     where c.name = 'lanes' and (c.done_at is null or c.done_at <= {now} - cast(:every as interval) or c.done_at > {now})
       /* pause point: relist_lock */
       for update skip locked
),
heads (lane, scheduled_at) as ( -- of each lane when its first row is due: most often it is
    (select p.lane, p.scheduled_at
       from matrixsched.processing_queue p
      where p.lane >= 'limit|' and p.lane < 'quota}' and exists (select from turn)
      order by p.lane, p.scheduled_at limit 1)
    union all
    select n.lane, n.scheduled_at
      from heads c
     cross join lateral (select p.lane, p.scheduled_at
                           from matrixsched.processing_queue p
                          where p.lane > c.lane and p.lane >= 'limit|' and p.lane < 'quota}'
                          order by p.lane, p.scheduled_at limit 1) n
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
     order by lane
    on conflict do nothing
),
mistaken as materialized (
    select h.lane, case when h.ready_at > {now} then {now}
                        else least(greatest(c.scheduled_at, {now} + interval '1 second'),
                                   {now} + cast(:look_again as interval)) end as ready_at
      from heads c
      join matrixsched.held_lanes h on h.lane = c.lane
     where h.ready_at > {now} + cast(:look_again as interval)
         or h.ready_at > {now} and exists (select from turn where was_set_back)
        or h.ready_at <= {now}
           and not exists (select from matrixsched.processing_queue p
                            where p.lane = h.lane and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now}
                              and (p.expires_at is null or p.expires_at > {now}))
     order by h.lane
       for update of h skip locked
),
put_off as (
    update matrixsched.held_lanes h set ready_at = m.ready_at from mistaken m where h.lane = m.lane
),
empty as materialized (
    select h.lane
      from matrixsched.held_lanes h
     where exists (select from turn) and h.lane not in (select lane from heads)
     order by h.lane
       for update skip locked
),
gone as (
    delete from matrixsched.held_lanes where lane in (select lane from empty)
),
buckets as materialized ( -- without a rate of their own: keys that are full again, slow-downs that are over
    select l.name
      from matrixsched.limits l
     where exists (select from turn) and l.name <> 'key:*' and l.requests is null
       and (l.slow_until is null or l.slow_until <= {now})
       and l.next_slot_ns < cast(extract(epoch from {now} - interval '1 hour') * 1000000000 as bigint)
                            - coalesce((select cast(k.pool as numeric) * k.per_us * 1000 / k.requests
                                          from matrixsched.limits k where k.name = 'key:*'), 0)
     order by l.name
     limit 1000
       for update skip locked
),
forgotten as (
    delete from matrixsched.limits where name in (select name from buckets)
),
done as (
    update matrixsched.chores c set done_at = {now} from turn t where c.name = t.name
)
select (select count(*) from turn) as turns, (select count(*) from unlisted) as listed,
       (select count(*) from empty) as gone;
