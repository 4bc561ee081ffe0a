-- close_fence (sqlite). Promise: once it is answered, no move or claim under this guid is under way, and none will ever write
-- anything; asked after the answer to one was lost, before looking for what it did. Frees the shard if it was held; a free
-- one gets the fresh guid as well. No row = another holds it: as closed.
-- Differs from postgresql/close_fence.sql: only in the casts; whoever has passed the fence has the file to itself.
update matrixsched_shard_locks
   set locked = 0, last_lock_guid = :fresh_guid
 where shard_id = :shard_id and (last_lock_guid = :sync_guid or not locked)
returning shard_id;
