-- beat_shard (sqlite). Promise: prolongs a lock only while it is still held under this guid; no row = lost.
-- Differs from postgresql/beat_shard.sql: only in the casts.
update matrixsched_shard_locks
   set last_heartbeat_at = {now}
 where shard_id = :shard_id and last_lock_guid = :sync_guid and locked
returning shard_id;
