-- What keeps the tables small: retention per outcome, expiry of rows that nobody runs, and one worker at a time to do it.
-- Only adds: workers that know schema 1 alone go on beside newer ones.
-- While an index is built, nothing is written to its table. Where tables are so large that this takes more than a moment,
-- build both beforehand under their names with CREATE INDEX CONCURRENTLY: then they are found.

-- Pruning reads what ended in one state, oldest first. The index by finished_at alone serves libraries of schema 1.
create index if not exists scheduled_actions_pruned
    on matrixsched.scheduled_actions (state, finished_at) where finished_at is not null;

-- Rows that wait, perhaps for a worker that never comes, and are too late by now. Those without an end cost nothing.
create index if not exists processing_queue_expires
    on matrixsched.processing_queue (expires_at) where expires_at is not null;

create table matrixsched.chores (
    name        text        collate "C" primary key,
    held_by     uuid,                 -- whose turn it is; null: nobody's
    held_until  timestamptz not null default '1970-01-01 00:00:00+00',
    position    text        not null default '{}', -- JSON: how far the sweeps have come, for whoever goes on
    done_at     timestamptz           -- when it was last done to its end
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

insert into matrixsched.chores (name) values ('tidy');

-- One row comes and goes for each call: vacuumed by count, not by a share of what an hour's rush left behind.
alter table matrixsched.requests
    set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Written once, deleted once: full pages, and a vacuum before a tenth of it is dead.
alter table matrixsched.attempt_history
    set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
