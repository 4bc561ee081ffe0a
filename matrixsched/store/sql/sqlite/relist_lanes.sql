-- relist_lanes (sqlite). Promise: every gated lane that has rows is listed, and no other. Done by one worker at a time, at
-- most once in :every; the others write nothing. It finds what a crash left unlisted: rows whose mover died before it could
-- say when to look at them, and attempts whose lease ended. A lane in which nothing may go, because it is not due or has expired, is put off,
-- lest it takes the place of others; none is put off for longer than :look_again. If the last time lies in the future, the
-- clock was set back: every lane is looked at anew.
-- Lanes are read by skipping through their index, one probe each.
-- Differs from postgresql/relist_lanes.sql: several statements in one transaction.

-- name: turn
select c.name
  from matrixsched_chores c
 where c.name = 'lanes' and (c.done_at is null or c.done_at <= {now} - :every or c.done_at > {now});

-- name: list
with recursive lanes (lane) as (
    select (select p.lane from matrixsched_processing_queue p
             where p.lane >= 'limit|' and p.lane < 'quota}'
             order by p.lane limit 1)
    union all
    select (select p.lane from matrixsched_processing_queue p
             where p.lane > c.lane and p.lane >= 'limit|' and p.lane < 'quota}'
             order by p.lane limit 1)
      from lanes c
     where c.lane is not null
),
parted (lane, parts) as ( -- as a JSON array, of which the name is one already but for its signs
    select lane, '["' || replace(replace(replace(lane, '\', '\\'), '"', '\"'), '|', '","') || '"]'
      from lanes
     where lane is not null and lane not in (select lane from matrixsched_held_lanes)
)
insert into matrixsched_held_lanes (lane, priority, handler, ready_at)
select s.lane, s.parts ->> '$[#-3]', s.parts ->> '$[#-1]',
       max({now}, (select p.scheduled_at from matrixsched_processing_queue p
                    where p.lane = s.lane and p.lane >= 'limit|' and p.lane < 'quota}'
                    order by p.scheduled_at limit 1))
  from parted s
returning lane;

-- name: put_off
update matrixsched_held_lanes as h
   set ready_at = iif(h.ready_at > {now}, {now},
                      min({now} + :look_again,
                          max({now} + 1000000,
                              coalesce((select p.scheduled_at from matrixsched_processing_queue p
                                         where p.lane = h.lane and p.lane >= 'limit|' and p.lane < 'quota}'
                                         order by p.scheduled_at limit 1), 0))))
 where h.ready_at > {now} + :look_again
    or h.ready_at > {now} and exists (select 1 from matrixsched_chores c where c.name = 'lanes' and c.done_at > {now})
    or h.ready_at <= {now}
       and not exists (select 1 from matrixsched_processing_queue p
                        where p.lane = h.lane and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now}
                          and (p.expires_at is null or p.expires_at > {now}));

-- name: unlist
delete from matrixsched_held_lanes
 where not exists (select 1 from matrixsched_processing_queue p
                    where p.lane = matrixsched_held_lanes.lane and p.lane >= 'limit|' and p.lane < 'quota}');

-- name: forget
delete from matrixsched_limits
 where name <> 'key:*' and requests is null
   and (slow_until is null or slow_until <= {now})
   and next_slot_ns < ({now} - 3600000000) * 1000
                      - coalesce((select cast(k.pool as real) * k.per_us * 1000 / k.requests
                                    from matrixsched_limits k where k.name = 'key:*'), 0);

-- name: done
update matrixsched_chores set done_at = {now} where name = 'lanes';
