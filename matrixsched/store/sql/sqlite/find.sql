-- find (sqlite). Promise: the actions of these ids as they stand, with what the queue row has counted meanwhile.
-- Differs from postgresql/find.sql: json_each instead of unnest.
select a.*, coalesce(p.interrupted, 0) as interrupted_uncounted,
       exists (select 1 from matrixsched_processing_queue r
                where r.shard_id = a.shard_id and r.action_id = a.action_id
                  and r.claimed_by is not null and r.scheduled_at > {now}) as running
  from json_each(:keys) as wanted
 cross join matrixsched_scheduled_actions a on a.shard_id = wanted.value ->> 0 and a.action_id = wanted.value ->> 1
  left join matrixsched_processing_queue p
    on p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid;
