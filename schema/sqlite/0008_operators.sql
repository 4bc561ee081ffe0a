-- What operators did, and what workers did minute by minute, for whoever looks at the whole fleet. Only adds: workers that know
-- schema 7 alone go on beside newer ones, and are not told of.

-- Written before anything is changed, completed when it is known what came of it: nothing is changed without a trace.
create table matrixsched_audit_log (
    entry_guid  text    not null primary key,
    asked_at    integer not null,
    who         text    not null,
    via         text    not null check (via in ('command', 'api', 'dashboard')),
    verb        text    not null, -- such as cancel or pause_template
    subject     text    not null, -- what it was done to, or a filter in words
    before      text    not null check (json_valid(before)), -- JSON: the facts that it was decided on
    outcome     text    not null check (outcome in ('begun', 'done', 'refused', 'failed')), -- begun: nobody told how it ended
    after       text    not null check (json_valid(after)), -- JSON: what came of it
    ended_at    integer,
    check ((outcome = 'begun') = (ended_at is null))
) without rowid;

create index matrixsched_audit_log_asked on matrixsched_audit_log (asked_at, entry_guid);

-- A worker that is there: it says so every half a minute, and takes its row away when it leaves.
create table matrixsched_workers (
    worker      text    not null primary key, -- as in shard_locks
    started_at  integer not null,
    seen_at     integer not null,
    slots       integer not null check (slots >= 0),   -- handlers that may run at once
    running     integer not null check (running >= 0), -- when it was seen
    handlers    text    not null check (json_valid(handlers)) -- JSON: their names
) without rowid;

-- What it did in a minute; it writes the whole of it each time that it looks.
create table matrixsched_worker_minutes (
    minute        integer not null,
    worker        text    not null,
    outcomes      text    not null check (json_valid(outcomes)), -- JSON: how many attempts ended so
    late          text    not null check (json_valid(late)), -- JSON: how many began how late, a number for each bucket
    due           integer,          -- what was due in the whole installation, and for how long: if it looked
    oldest_due_s  real,
    primary key (minute, worker)
) without rowid;
