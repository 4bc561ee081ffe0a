-- Semaphores: which tasks may be active, the most important first. Only adds.

create table matrixsched.semaphores (
    key          text        collate "C" primary key,
    active       integer     not null check (active >= 0),   -- how many tasks may hold a place
    try_release  integer     not null,                       -- how many of them, the last ones, may be asked to make room
    hold_for     interval    check (hold_for > interval '0'), -- how long a place is held unless renewed; null: for good
    balanced_at  timestamptz,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    check (try_release between 0 and active)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- A task that waits for a place or holds one; what is released is gone.
create table matrixsched.semaphore_tasks (
    semaphore    text             collate "C" not null,
    task_id      text             collate "C" not null,
    priority     double precision not null check (priority > '-infinity' and priority < 'infinity'), -- NaN is above infinity
    state        text             collate "C" not null check (state in ('waiting', 'acquired', 'asked')),
    guid         uuid             not null, -- new whenever the task is enqueued: what is said of an earlier time is void
    enqueued_at  timestamptz      not null,
    acquired_at  timestamptz,
    asked_at     timestamptz,
    hold_until   timestamptz,               -- when the place is lost unless it is renewed
    primary key (semaphore, task_id),
    check ((state = 'waiting') = (acquired_at is null)),
    check ((state = 'asked') = (asked_at is not null)),
    check (state <> 'waiting' or hold_until is null)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The best of those that wait: however many there are, a balance reads the first few.
create index semaphore_tasks_waiting
    on matrixsched.semaphore_tasks (semaphore, priority desc, enqueued_at, task_id) where state = 'waiting';

create index semaphore_tasks_held
    on matrixsched.semaphore_tasks (semaphore, priority desc, enqueued_at, task_id) where state <> 'waiting';

create index semaphore_tasks_lapsing on matrixsched.semaphore_tasks (hold_until) where hold_until is not null;

-- "Something about this semaphore changed": written by whoever changes it, in the same transaction, and deleted by the
-- balance that saw it. Nobody waits for anybody here, and semaphores at rest have none.
create table matrixsched.semaphore_changes (
    semaphore    text collate "C" not null,
    change_guid  uuid not null,
    primary key (semaphore, change_guid)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

insert into matrixsched.chores (name) values ('balance');
