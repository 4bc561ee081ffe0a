-- count_held (postgresql). Promise: how many rows are due, and not expired, in each of these gated lanes of a shard; counting
-- stops at :count_max. Lanes without any are not named. It locks nothing.
select {now} as now, s.lane, c.waiting
  from unnest(cast(:lanes as text[])) with ordinality as s (lane, number)
 cross join lateral (
       select count(*) as waiting
         from (select from matrixsched.processing_queue p
                where p.shard_id = cast(:shard_id as integer) and p.lane = s.lane and p.lane >= '' and p.scheduled_at <= {now}
                  and (p.expires_at is null or p.expires_at > {now})
                limit cast(:count_max as integer)) w) c
 where c.waiting > 0
 order by s.number;
