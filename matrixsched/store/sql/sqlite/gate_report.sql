-- gate_report (sqlite). Promise: what waits before gates, and how the quota is used.
-- Differs from postgresql/gate_report.sql: a subquery for each lane instead of a lateral join.

-- name: lanes
-- How many rows are due in each listed lane, those of templates first; at most :lanes_max lanes. Counting stops at
-- :count_max over all, of which every lane has the same share: a long one hides no other.
with listed as materialized (
    select h.lane from matrixsched_held_lanes h order by h.lane desc limit :lanes_max
),
share as materialized (
    select max(1, :count_max / max(1, count(*))) as most from listed
)
select l.lane, (select count(*)
                  from (select 1 from matrixsched_processing_queue p
                         where p.lane = l.lane and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now}
                         limit (select most from share))) as waiting
  from listed l
 where waiting > 0;

-- name: shares
-- What each template was granted in the present window and in the last one before, and what it has used of that.
with recent as materialized (
    select begins_at, ends_at from matrixsched_quota_windows where begins_at <= {now} order by begins_at desc limit 2
)
select w.ends_at > {now} as present, g.template, sum(g.granted) as granted, sum(g.used) as used
  from recent w
  join matrixsched_quota_grants g on g.begins_at = w.begins_at
 where w.ends_at > {now} or w.begins_at = (select max(begins_at) from recent where ends_at <= {now})
 group by w.begins_at, w.ends_at, g.template
 order by w.begins_at, g.template;
