-- What operators did, and what workers did minute by minute, for whoever looks at the whole fleet. Only adds: workers that know
-- schema 7 alone go on beside newer ones, and are not told of.

-- Written before anything is changed, completed when it is known what came of it: nothing is changed without a trace.
create table matrixsched.audit_log (
    entry_guid  uuid        primary key,
    asked_at    timestamptz not null,
    who         text        not null,
    via         text        not null check (via in ('command', 'api', 'dashboard')),
    verb        text        collate "C" not null, -- such as cancel or pause_template
    subject     text        not null, -- what it was done to, or a filter in words
    before      text        not null, -- JSON: the facts that it was decided on
    outcome     text        not null check (outcome in ('begun', 'done', 'refused', 'failed')), -- begun: nobody told how it ended
    after       text        not null, -- JSON: what came of it
    ended_at    timestamptz,
    check ((outcome = 'begun') = (ended_at is null))
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

create index audit_log_asked on matrixsched.audit_log (asked_at, entry_guid);

-- A worker that is there: it says so every half a minute, and takes its row away when it leaves.
create table matrixsched.workers (
    worker      text        collate "C" primary key, -- as in shard_locks
    started_at  timestamptz not null,
    seen_at     timestamptz not null,
    slots       integer     not null check (slots >= 0),   -- handlers that may run at once
    running     integer     not null check (running >= 0), -- when it was seen
    handlers    text        not null -- JSON: their names
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- What it did in a minute; it writes the whole of it each time that it looks.
create table matrixsched.worker_minutes (
    minute        timestamptz      not null,
    worker        text             collate "C" not null,
    outcomes      text             not null, -- JSON: how many attempts ended so
    late          text             not null, -- JSON: how many began how late, a number for each bucket
    due           integer,                   -- what was due in the whole installation, and for how long: if it looked
    oldest_due_s  double precision,
    primary key (minute, worker)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
