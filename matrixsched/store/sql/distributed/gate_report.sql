-- gate_report (distributed). Promise: as that of PostgreSQL, in steps: the listed lanes, which are one node's; then how many rows are
-- due in each, counted in one shard after the other, so that all of them together count no more than is said of a lane.

-- name: listed
-- With the share of :count_max that each lane has.
with listed as materialized (
    select h.lane from matrixsched.held_lanes h order by h.lane desc limit cast(:lanes_max as integer)
)
select {now} as now, array(select lane from listed) as lanes,
       (select greatest(1, cast(:count_max as bigint) / greatest(1, count(*))) from listed) as most;

-- name: lanes
-- In one shard; of each lane :mosts.
select k.lane,
       (select count(*)
          from (select true from matrixsched.processing_queue p
                 where p.shard_id = cast(:shard_id as integer) and p.lane = k.lane and p.lane >= '' and p.scheduled_at <= {now}
                 order by p.scheduled_at
                 limit k.most) w) as waiting
  from unnest(cast(:lanes as text[]), cast(:mosts as bigint[])) as k (lane, most);
