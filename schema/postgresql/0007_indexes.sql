-- What made statements slower than they need be. A library that knows schema 7 works on schema 6 as well: let all workers be
-- of it before this is applied. An older one does no harm, but reads whole shards without the index that goes.
-- While an index is built, nothing is written to its table. Where that is so large that it takes more than a moment, build it
-- beforehand under its name with CREATE INDEX CONCURRENTLY: then it is found.

-- Rows are read in the order of their times, in a lane of a shard; or they are looked up by their key. Where PostgreSQL knows
-- of few rows, it takes an index that begins with the shard for as good as the key: then it reads all of the shard, once for
-- each row. This one is not for look-ups, since those do not say that a lane is not before '', as none is.
create index if not exists processing_queue_lanes
    on matrixsched.processing_queue (shard_id, lane, scheduled_at, expires_at) where lane >= '';

drop index if exists matrixsched.processing_queue_due;

-- It served libraries of schema 1, which prune without regard to the outcome; every recorded outcome paid for it.
drop index if exists matrixsched.scheduled_actions_finished;
