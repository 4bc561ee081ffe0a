-- prune_action_requests (distributed). Promise: as `prune_requests`, for requests of actions: shard after shard.

-- name: old
select o.shard_id, count(*) as many
  from (select shard_id from matrixsched.action_requests
         where created_at < ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC' -- days of 24 hours
         order by created_at
         limit cast(:limit as integer)) o
 group by o.shard_id
 order by o.shard_id;

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
