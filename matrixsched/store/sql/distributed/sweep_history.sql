-- sweep_history (distributed). Promise: as that of PostgreSQL: the next rows are read over the shards, without a lock, and what
-- is too much of them is deleted shard after shard.

-- name: look
select shard_id, action_id
  from matrixsched.attempt_history
 where (shard_id, action_id) > (cast(:after_shard as integer), cast(:after_id as text))
 order by shard_id, action_id
 limit cast(:limit as integer);

-- name: delete
with remembered as materialized (
    select k.action_id, coalesce(a.keep, 0) as keep
      from unnest(cast(:action_ids as text[])) as k (action_id)
      left join lateral (select cast(:history_max as integer) as keep from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = k.action_id
                         offset 0) a on true
),
gone as (
    delete from matrixsched.attempt_history
     where {place} = any (array(
               select old.ctid
                 from remembered r
                cross join lateral (select h.ctid from matrixsched.attempt_history h
                                     where h.shard_id = cast(:shard_id as integer) and h.action_id = r.action_id
                                     order by h.ended_at desc, h.attempt desc
                                    offset r.keep) old))
    returning 1
)
select count(*) as gone from gone;
