-- Events are found among what is new, and late places of a semaphore among those of all others, however many there are. Only
-- adds: workers that know schema 5 alone go on beside newer ones.

create index if not exists matrixsched_incoming_queue_events
    on matrixsched_incoming_queue (shard_id, created_at) where lane = 'event';

create index if not exists matrixsched_semaphore_tasks_late
    on matrixsched_semaphore_tasks (semaphore, hold_until) where hold_until is not null;
