-- release_shard (distributed). Promise: frees a lock only while it is still held under this guid; no row = lost before. Whoever
-- is to be told is told after that: nobody before the shard is free.
update matrixsched.shard_locks
   set locked = false
 where shard_id = cast(:shard_id as integer) and last_lock_guid = cast(:sync_guid as uuid) and locked
       /* pause point: release_lock */
returning shard_id;
