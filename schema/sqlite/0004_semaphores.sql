-- Semaphores: which tasks may be active, the most important first. Only adds.
-- Differs from postgresql/0004_semaphores.sql: SQLite has no vacuum to tune, and stores NaN as null.

create table matrixsched_semaphores (
    key          text    not null primary key,
    active       integer not null check (active >= 0), -- how many tasks may hold a place
    try_release  integer not null,                     -- how many of them, the last ones, may be asked to make room
    hold_for     integer check (hold_for > 0),         -- how long a place is held unless renewed; null: for good
    balanced_at  integer,
    created_at   integer not null,
    updated_at   integer not null,
    check (try_release between 0 and active)
) without rowid;

-- A task that waits for a place or holds one; what is released is gone.
create table matrixsched_semaphore_tasks (
    semaphore    text    not null,
    task_id      text    not null,
    priority     real    not null check (priority between -1.7976931348623157e308 and 1.7976931348623157e308),
    state        text    not null check (state in ('waiting', 'acquired', 'asked')),
    guid         text    not null, -- new whenever the task is enqueued: what is said of an earlier time is void
    enqueued_at  integer not null,
    acquired_at  integer,
    asked_at     integer,
    hold_until   integer,          -- when the place is lost unless it is renewed
    primary key (semaphore, task_id),
    check ((state = 'waiting') = (acquired_at is null)),
    check ((state = 'asked') = (asked_at is not null)),
    check (state <> 'waiting' or hold_until is null)
) without rowid;

-- The best of those that wait: however many there are, a balance reads the first few.
create index matrixsched_semaphore_tasks_waiting
    on matrixsched_semaphore_tasks (semaphore, priority desc, enqueued_at, task_id) where state = 'waiting';

create index matrixsched_semaphore_tasks_held
    on matrixsched_semaphore_tasks (semaphore, priority desc, enqueued_at, task_id) where state <> 'waiting';

create index matrixsched_semaphore_tasks_lapsing on matrixsched_semaphore_tasks (hold_until) where hold_until is not null;

-- "Something about this semaphore changed": written by whoever changes it, in the same transaction, and deleted by the
-- balance that saw it. Semaphores at rest have none.
create table matrixsched_semaphore_changes (
    semaphore    text not null,
    change_guid  text not null,
    primary key (semaphore, change_guid)
) without rowid;

insert into matrixsched_chores (name) values ('balance');
