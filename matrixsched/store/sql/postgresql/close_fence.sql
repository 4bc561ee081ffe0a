-- close_fence (postgresql). Promise: once it is answered, no move or claim under this guid is under way, and none will ever
-- write anything; asked after the answer to one was lost, before looking for what it did. The guid is a key column: whoever
-- has passed the fence is waited for. Frees the shard if it was held. A free one gets the fresh guid as well: a move that is
-- about to take it waits behind us, and finds that somebody was there. No row = another holds it: as closed.
update matrixsched.shard_locks
   set locked = false, last_lock_guid = cast(:fresh_guid as uuid)
 where shard_id = cast(:shard_id as integer) and (last_lock_guid = cast(:sync_guid as uuid) or not locked)
   /* pause point: close_fence_lock */
returning shard_id;
