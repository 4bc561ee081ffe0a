-- beat_shard (postgresql). Promise: prolongs a lock only while it is still held under this guid; no row = lost.
update matrixsched.shard_locks
   set last_heartbeat_at = {now}
 where shard_id = cast(:shard_id as integer) and last_lock_guid = cast(:sync_guid as uuid) and locked
   and {in_time}
       /* pause point: beat_lock */
returning shard_id;
