-- gate_report (postgresql). Promise: what waits before gates, and how the quota is used; it locks nothing.

-- name: lanes
-- How many rows are due in each listed lane, those of templates first; at most :lanes_max lanes. Counting stops at
-- :count_max over all, of which every lane has the same share: a long one hides no other. One row comes back in any case.
with listed as materialized (
    select h.lane from matrixsched.held_lanes h order by h.lane desc limit cast(:lanes_max as integer)
),
share as materialized (
    select greatest(1, cast(:count_max as bigint) / greatest(1, count(*))) as most from listed
)
select {now} as now, f.lane, f.waiting
  from (select) as always
  left join (select l.lane, c.waiting
               from listed l
              cross join lateral (
                    select count(*) as waiting
                      from (select from matrixsched.processing_queue p
                             where p.lane = l.lane and p.lane >= 'limit|' and p.lane < 'quota}'
                               and p.scheduled_at <= {now}
                             limit (select most from share)) w) c
              where c.waiting > 0) f on true;

-- name: shares
-- What each template was granted in the present window and in the last one before, and what it has used of that.
with recent as materialized (
    select begins_at, ends_at from matrixsched.quota_windows where begins_at <= {now} order by begins_at desc limit 2
)
select w.ends_at > {now} as present, g.template, cast(sum(g.granted) as bigint) as granted, cast(sum(g.used) as bigint) as used
  from recent w
  join matrixsched.quota_grants g on g.begins_at = w.begins_at
 where w.ends_at > {now} or w.begins_at = (select max(begins_at) from recent where ends_at <= {now})
 group by w.begins_at, w.ends_at, g.template
 order by w.begins_at, g.template;
