-- waiting_row (sqlite). Promise: where a version of an action stands in the processing queue, and when it is looked at
-- there; nothing if it was not moved there yet, or is finished.
-- Differs from postgresql/waiting_row.sql: only in the casts.
select lane, scheduled_at
  from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid;
