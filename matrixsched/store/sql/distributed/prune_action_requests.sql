-- prune_action_requests (distributed). Promise: as `prune_requests`, for requests of actions: shard after shard, first the one
-- that has the oldest.

-- name: shards
-- Those that have some; one probe of each.
select l.shard_id
  from matrixsched.shard_locks l
 cross join lateral (select r.created_at
                       from matrixsched.action_requests r
                      where r.shard_id = l.shard_id
                        and r.created_at
                            < ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC' -- days of 24 hours
                      order by r.created_at limit 1) o
 order by o.created_at, l.shard_id;

-- name: delete
with old as materialized (
    select ctid from matrixsched.action_requests
     where shard_id = cast(:shard_id as integer)
       and created_at < ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC'
       /* pause point: prune_requests_lock */
     order by created_at
     limit cast(:limit as integer)
       for update skip locked
),
gone as (
    delete from matrixsched.action_requests where {place} = any (array(select ctid from old)) returning 1
)
select count(*) as gone from gone;
