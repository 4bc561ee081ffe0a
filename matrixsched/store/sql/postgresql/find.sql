-- find (postgresql). Promise: the actions of these ids as they stand, with what the queue row has counted meanwhile, and whether
-- any version of them is being run.
select a.*, coalesce(p.interrupted, 0) as interrupted_uncounted, coalesce(p.running, false) as running
  from unnest(cast(:shard_ids as integer[]), cast(:action_ids as text[])) as wanted (shard_id, action_id)
  join matrixsched.scheduled_actions a on a.shard_id = wanted.shard_id and a.action_id = wanted.action_id
  left join lateral ( -- all versions that there are: hardly ever more than one
       select max(r.interrupted) filter (where r.action_guid = a.action_guid) as interrupted,
              bool_or(r.claimed_by is not null and r.scheduled_at > {now}) as running
         from matrixsched.processing_queue r
        where r.shard_id = a.shard_id and r.action_id = a.action_id) p on true;
