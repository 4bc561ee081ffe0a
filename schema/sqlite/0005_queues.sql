-- Typed queues: batches of tasks, each taken by one at a time for as long as its visibility timeout says. Only adds.
-- Differs from postgresql/0005_queues.sql: SQLite has no vacuum to tune, no arrays and no jsonb; known queues can be unique,
-- for nobody writes at the same time.

create table matrixsched_queue_tasks (
    id                 integer primary key autoincrement, -- never given twice; a dead letter comes back under its own
    queue              integer not null check (queue >= 0),
    attempts           integer not null check (attempts >= 0), -- how often it has come back to the queue
    created_at         integer not null,
    start_at           integer not null, -- since when it can be taken, this time
    previous_start_at  integer,          -- and the time before
    due_at             integer not null, -- its start; while taken: when the visibility timeout is over
    receipt            text,             -- of whoever has it; still set when due: nobody settled it in time
    data               blob    not null,
    check (receipt is not null or due_at = start_at),
    check ((attempts = 0) = (previous_start_at is null))
);

-- The longest ready of a queue first; what is not due yet, however much, is behind them and costs nothing.
create index matrixsched_queue_tasks_due on matrixsched_queue_tasks (queue, due_at, id);

-- What was set aside with its reason, until it is redriven or purged.
create table matrixsched_queue_dead_letters (
    queue              integer not null,
    id                 integer not null,
    attempts           integer not null,
    created_at         integer not null,
    start_at           integer not null,
    previous_start_at  integer,
    died_at            integer not null,
    reason             text    not null,
    data               blob    not null,
    primary key (queue, id)
) without rowid;

-- A queue of which tasks were taken or purged, so that it is told of when it is empty.
create table matrixsched_known_queues (
    queue  integer not null primary key check (queue >= 0)
);

-- What may be changed while workers run; what is null is as they were started.
create table matrixsched_queue_settings (
    queue           integer not null primary key check (queue >= 0),
    name            text,
    paused          integer not null default 0 check (paused in (0, 1)),
    batch_size      integer check (batch_size > 0),
    visibility      integer check (visibility > 0),
    processors_max  integer check (processors_max >= 0), -- of this queue, in the whole fleet
    updated_at      integer not null
) without rowid;

-- A worker that is there: what its processors did lately, and which queues it is to work on.
create table matrixsched_queue_workers (
    worker          text    not null primary key,
    name            text    not null,
    processors_max  integer not null check (processors_max >= 0),
    report          text    not null check (json_valid(report)),
    seen_at         integer not null,
    assignment      text    check (assignment is null or json_valid(assignment)), -- null: nobody told it anything yet
    assigned_at     integer,
    check ((assignment is null) = (assigned_at is null))
) without rowid;

-- The ids of the tasks that a request put or settled: the answer to whoever sends it again because none came.
alter table matrixsched_requests add column task_ids text;

insert into matrixsched_chores (name) values ('queues');
