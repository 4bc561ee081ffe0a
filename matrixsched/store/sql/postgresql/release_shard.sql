-- release_shard (postgresql). Promise: frees a lock only while it is still held under this guid; no row = lost before. With
-- :channel all are told, and nobody before the shard is free. Its commit does not wait for the disk: if
-- the server crashes before it is there, the shard is free when its lease ends.
with unflushed as materialized (
    select set_config('synchronous_commit', 'off', true)
),
freed as (
    update matrixsched.shard_locks
       set locked = false
     where (select count(*) from unflushed) > 0 and shard_id = cast(:shard_id as integer) and last_lock_guid = cast(:sync_guid as uuid) and locked
           /* pause point: release_lock */
    returning shard_id
),
told as (
    select pg_notify(cast(:channel as text), 'actions') from freed where cast(:channel as text) is not null
)
select f.shard_id, (select count(*) from told) as told from freed f;
