-- count_held (sqlite). Promise: how many rows are due, and not expired, in each of these gated lanes of a shard; counting
-- stops at :count_max. Lanes without any are not named.
-- Differs from postgresql/count_held.sql: lanes come as JSON.
select s.value as lane, (select count(*) from (select 1 from matrixsched_processing_queue p
                                                 where p.shard_id = :shard_id and p.lane = s.value
                                                   and p.scheduled_at <= {now}
                                                   and (p.expires_at is null or p.expires_at > {now})
                                                 limit :count_max)) as waiting
  from json_each(:lanes) as s
 where waiting > 0
 order by s.key;
