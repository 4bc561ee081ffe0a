-- plan_window (distributed). Promise: as that of PostgreSQL. What is due before gates is read over the shards, each read once:
-- an index that is skipped through, lane by lane, is one node's.

-- name: due
select distinct p.lane
  from matrixsched.processing_queue p
 where p.lane >= 'quota|' and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now};

-- name: count
with counted as materialized (
    select p.lane, count(*) as waiting
      from matrixsched.processing_queue p
     where p.lane = any (cast(:lanes as text[])) and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now}
       and (p.expires_at is null or p.expires_at > {now})
     group by p.lane
)
select k.number, cast(least(coalesce(sum(c.waiting), 0), (cast(:most as bigint[]))[k.number]) as bigint) as waiting
  from unnest(cast(:lanes as text[]), cast(:numbers as integer[])) as k (lane, number)
  left join counted c on c.lane = k.lane
 group by k.number;
