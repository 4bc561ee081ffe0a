-- unblock (postgresql). Promise: of these actions, of which an attempt at an earlier version has just ended or was
-- given back, the present version is due at its own time again if it was put behind that attempt. A statement of its own,
-- after `record` or `give_back`: what was moved or put off between the snapshot of that one and its locks is seen only
-- from here on; and nobody puts it off any more, for the row of the attempt is gone or unclaimed. Never waits. Sent again
-- it does nothing.
with ended as materialized (
    select e.shard_id, e.action_id
      from unnest(cast(:shard_ids as integer[]), cast(:action_ids as text[])) as e (shard_id, action_id)
),
waiting as materialized (
    select p.shard_id, p.action_id, p.action_guid, a.scheduled_at
      from ended e
     cross join lateral (select a.action_guid, a.scheduled_at
                           from matrixsched.scheduled_actions a
                          where a.shard_id = {e.shard_id} and a.action_id = e.action_id
                         offset 0) a
     cross join lateral (select p.shard_id, p.action_id, p.action_guid
                           from matrixsched.processing_queue p
                          where p.shard_id = {e.shard_id} and p.action_id = e.action_id and p.action_guid = a.action_guid
                            and p.claimed_by is null and p.scheduled_at > a.scheduled_at
                            /* pause point: unblock_lock */
                            for update of p skip locked) p
)
update matrixsched.processing_queue p
   set scheduled_at = w.scheduled_at
  from waiting w
 where p.shard_id = {w.shard_id} and p.action_id = w.action_id and p.action_guid = w.action_guid
returning p.action_guid;
