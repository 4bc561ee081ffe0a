-- Events are found among what is new, and late places of a semaphore among those of all others, however many there are. Only
-- adds: workers that know schema 5 alone go on beside newer ones.
-- While an index is built, nothing is written to its table. Where tables are so large that this takes more than a moment,
-- build both beforehand under their names with CREATE INDEX CONCURRENTLY: then they are found.

create index if not exists incoming_queue_events on matrixsched.incoming_queue (shard_id, created_at) where lane = 'event';

create index if not exists semaphore_tasks_late
    on matrixsched.semaphore_tasks (semaphore, hold_until) where hold_until is not null;
