-- prune_actions (postgresql). Promise: of the actions that ended in :state, deletes only those that are old *when locked*,
-- oldest first, so that one replaced meanwhile stays; with them goes their history. Returns how many.
with old as materialized (
    select ctid, shard_id, action_id
      from matrixsched.scheduled_actions
     -- Compared as a pair, so that no other index can serve: one by finished_at alone reads all that ended otherwise.
     where (state, finished_at) > (cast(:state as text), timestamptz '-infinity')
       and (state, finished_at)
           < (cast(:state as text), ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC') -- days of 24 h
       and finished_at is not null
       /* pause point: prune_lock */
     order by state, finished_at
     limit cast(:limit as integer)
       for update skip locked
),
history as (
    delete from matrixsched.attempt_history
     where ctid = any (array(
               select h.ctid
                 from old o
                cross join lateral (select h.ctid from matrixsched.attempt_history h
                                     where h.shard_id = o.shard_id and h.action_id = o.action_id
                                    offset 0) h))
),
gone as ( -- by place: exactly the versions that were locked
    delete from matrixsched.scheduled_actions where ctid = any (array(select ctid from old)) returning 1
)
select count(*) as gone from gone;
