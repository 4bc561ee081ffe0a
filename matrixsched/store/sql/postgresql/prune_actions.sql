-- prune_actions (postgresql). Promise: deletes only actions that are finished and old *when locked*, so that one replaced
-- meanwhile stays; with them goes their history. Returns how many.
with old as materialized (
    select shard_id, action_id, action_guid
      from matrixsched.scheduled_actions
     where finished_at < ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC' -- days of 24 hours
       /* pause point: prune_lock */
     order by finished_at
     limit cast(:limit as integer)
       for update skip locked
),
history as (
    delete from matrixsched.attempt_history h
     using old o
     where h.shard_id = o.shard_id and h.action_id = o.action_id
),
gone as (
    delete from matrixsched.scheduled_actions a
     using old o
     where a.shard_id = o.shard_id and a.action_id = o.action_id and a.action_guid = o.action_guid
    returning 1
)
select count(*) as gone from gone;
