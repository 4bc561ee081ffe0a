-- What keeps the tables small: retention per outcome, expiry of rows that nobody runs, and one worker at a time to do it.
-- Only adds: workers that know schema 1 alone go on beside newer ones.
-- Differs from postgresql/0002_hygiene.sql: SQLite has no vacuum to tune; pages that come free are used again.

-- Pruning reads what ended in one state, oldest first. The index by finished_at alone serves libraries of schema 1.
create index if not exists matrixsched_scheduled_actions_pruned
    on matrixsched_scheduled_actions (state, finished_at) where finished_at is not null;

-- Rows that wait, perhaps for a worker that never comes, and are too late by now. Those without an end cost nothing.
create index if not exists matrixsched_processing_queue_expires
    on matrixsched_processing_queue (expires_at) where expires_at is not null;

create table matrixsched_chores (
    name        text    not null primary key,
    held_by     text,                             -- whose turn it is; null: nobody's
    held_until  integer not null default 0,
    position    text    not null default '{}', -- JSON: how far the sweeps have come, for whoever goes on
    done_at     integer                           -- when it was last done to its end
) without rowid;

insert into matrixsched_chores (name) values ('tidy');
