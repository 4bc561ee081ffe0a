-- waiting_row (postgresql). Promise: whether the row that stands for a version of a live action is new, and as old as its action, or
-- where it stands in the processing queue and when it is looked at there, all in one snapshot; nothing if no live action is at
-- this version.
select p.lane, p.scheduled_at,
       exists (select from matrixsched.incoming_queue i
                where i.shard_id = cast(:shard_id as integer) and i.created_at = a.updated_at and i.action_id = a.action_id
                  and i.action_guid = a.action_guid) as is_new
  from matrixsched.scheduled_actions a
  left join matrixsched.processing_queue p
    on p.shard_id = {a.shard_id} and p.action_id = a.action_id and p.action_guid = a.action_guid
 where a.shard_id = cast(:shard_id as integer) and a.action_id = cast(:action_id as text)
   and a.action_guid = cast(:action_guid as uuid) and a.state = 'live';
