-- What `init --distributed` does after the migrations: every key and every unique constraint of a table that is spread by shard
-- contains the shard, as an engine asks for that keeps the shards on several nodes. Statements: sql/distributed/.

-- Plain UNIQUE all the same: the guid stays a key column, so that a takeover conflicts with the fence and a heartbeat does not.
alter table matrixsched.shard_locks drop constraint shard_locks_last_lock_guid_key;

alter table matrixsched.shard_locks add constraint shard_locks_guid unique (shard_id, last_lock_guid);

-- As `requests`, which goes on to hold those of semaphores and typed queues; a request about actions of several shards has a row
-- in each.
create table matrixsched.action_requests (
    shard_id      integer     not null,
    request_guid  uuid        not null,
    created_at    timestamptz not null,
    primary key (shard_id, request_guid)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- By whoever asks whether it was carried out and does not know where.
create index action_requests_guid on matrixsched.action_requests (request_guid);

create index action_requests_created on matrixsched.action_requests (shard_id, created_at);
