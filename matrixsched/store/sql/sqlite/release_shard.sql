-- release_shard (sqlite). Promise: frees a lock only while it is still held under this guid; no row = lost before.
-- Differs from postgresql/release_shard.sql: whoever watches the database sees by itself that something was written.
update matrixsched_shard_locks
   set locked = 0
 where shard_id = :shard_id and last_lock_guid = :sync_guid and locked
returning shard_id;
