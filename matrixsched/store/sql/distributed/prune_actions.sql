-- prune_actions (distributed). Promise: as that of PostgreSQL: the oldest are looked for in all shards, without a lock, and
-- deleted shard after shard, :limit of them at the most, if they are old *when locked*.

-- name: old
-- From the last instant on that was looked at before, without those of it that were.
select shard_id, action_id, finished_at
  from matrixsched.scheduled_actions
 -- Compared as a pair, so that no other index can serve: one by finished_at alone reads all that ended otherwise.
 where (state, finished_at) >= (cast(:state as text), coalesce(cast(:since as timestamptz), timestamptz '-infinity'))
   and (state, finished_at)
       < (cast(:state as text), ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC') -- days of 24 h
   and finished_at is not null
   and action_id <> all (cast(:met as text[]))
 order by state, finished_at
 limit cast(:limit as integer);

-- name: delete
with old as materialized (
    select a.ctid, g.action_id
      from unnest(cast(:action_ids as text[])) as g (action_id)
     cross join lateral (select a.ctid from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = g.action_id
                            and a.state = cast(:state as text)
                            and a.finished_at < ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC'
                            /* pause point: prune_lock */
                            for update skip locked) a
     limit cast(:limit as integer)
),
history as (
    delete from matrixsched.attempt_history
     where {place} = any (array(
               select h.ctid
                 from old o
                cross join lateral (select h.ctid from matrixsched.attempt_history h
                                     where h.shard_id = cast(:shard_id as integer) and h.action_id = o.action_id
                                    offset 0) h))
),
gone as ( -- by place: exactly the versions that were locked
    delete from matrixsched.scheduled_actions where {place} = any (array(select ctid from old)) returning 1
)
select count(*) as gone from gone;
