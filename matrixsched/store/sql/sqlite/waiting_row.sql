-- waiting_row (sqlite). Promise: whether the row that stands for a version of a live action is new, and as old as its action, or
-- where it stands in the processing queue and when it is looked at there, all in one snapshot; nothing if no live action is at
-- this version.
-- Differs from postgresql/waiting_row.sql: only in the casts.
select p.lane, p.scheduled_at,
       exists (select 1 from matrixsched_incoming_queue i
                where i.shard_id = a.shard_id and i.created_at = a.updated_at and i.action_id = a.action_id
                  and i.action_guid = a.action_guid) as is_new
  from matrixsched_scheduled_actions a
  left join matrixsched_processing_queue p
    on p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid
 where a.shard_id = :shard_id and a.action_id = :action_id and a.action_guid = :action_guid and a.state = 'live';
