-- waiting_row (postgresql). Promise: where a version of an action stands in the processing queue, and when it is looked
-- at there; nothing if it was not moved there yet, or is finished.
select lane, scheduled_at
  from matrixsched.processing_queue
 where shard_id = cast(:shard_id as integer) and action_id = cast(:action_id as text)
   and action_guid = cast(:action_guid as uuid);
