-- Gates: limits for the whole fleet, templates with their quota, and the lanes in which actions wait for them.
-- Only adds. Workers that know schema 2 alone know no gates: setting the first limit or template says so in
-- installation.oldest_library.
-- Differs from postgresql/0003_gates.sql: SQLite has no vacuum to tune, a key of the index carries the shard, and what has no
-- end is sorted first unless told otherwise.

-- A bucket of time slots: whoever claims takes the next ones, `next_slot_ns` is the first that is free.
create table matrixsched_limits (
    name          text    not null primary key,        -- global, handler:<name>, template:<name>, key:<key>, key:*
    requests      integer check (requests > 0),        -- so many …
    per_us        integer check (per_us > 0),          -- … in so many microseconds; both null: no rate of its own
    pool          integer not null default 0 check (pool >= 0), -- how many slots are kept while nobody wants them
    next_slot_ns  integer not null default 0,          -- nanoseconds since 1970: a slot is never rounded to an earlier time
    slow_until    integer,                             -- told to slow down until then, …
    slow_requests integer check (slow_requests > 0),   -- … to this rate; null: not at all
    slow_per_us   integer check (slow_per_us > 0),
    slow_reason   text,
    updated_at    integer not null,
    check ((requests is null) = (per_us is null)),
    check ((slow_requests is null) = (slow_per_us is null))
) without rowid;

create table matrixsched_templates (
    name            text    not null primary key,
    distribution    text    not null check (distribution in ('uniform', 'morning', 'day', 'evening', 'own')),
    windows         text    not null default '[]', -- JSON: of distribution own, ["08:00","12:00"] each
    zone            text    not null,              -- of recipients that have none
    weight          real    not null default 1 check (weight > 0),
    paused_at       integer,
    paused_until    integer,                       -- null while paused: until somebody resumes it
    last_served_at  integer,                       -- when a window was last planned that had a share for it
    created_at      integer not null,
    updated_at      integer not null
) without rowid;

-- How capacity is shared out; one row, changed while everything runs.
create table matrixsched_quota_settings (
    singleton  integer not null primary key default 1 check (singleton = 1),
    settings   text    not null default '{}', -- JSON: only what differs from the defaults
    updated_at integer not null default 0
);

insert into matrixsched_quota_settings (singleton) values (1);

-- A window of the quota, planned once for the whole fleet by whoever inserts it.
create table matrixsched_quota_windows (
    begins_at    integer not null primary key,
    ends_at      integer not null,
    planned_at   integer not null,
    planned_by   text    not null,
    max_to_send  integer,                -- null: no global limit
    templates    integer not null,       -- how many of them had messages
    check (ends_at > begins_at)
);

-- What a template may send in a window; spent by the very transaction that claims.
create table matrixsched_quota_grants (
    begins_at      integer not null,
    template       text    not null,
    priority       integer not null,
    inside         integer not null, -- to recipients for whom it is the right time of the day
    zones          text    not null, -- JSON: the zones of which that is true
    waiting        integer not null, -- how many there were when the window was planned, counted as far as it mattered
    granted        integer not null,
    used           integer not null default 0,
    last_served_at integer,          -- when it was last given something in this priority; it goes behind the others
    primary key (begins_at, template, priority, inside),
    check (used between 0 and granted)
) without rowid;

-- Lanes in which rows wait for a gate, and when it is worth looking again. Only a hint: what is missing here is found
-- within a second or two, and what is too much costs one look.
create table matrixsched_held_lanes (
    lane      text    not null primary key,
    priority  integer not null,
    handler   text    not null,
    ready_at  integer not null
) without rowid;

create index matrixsched_held_lanes_ready on matrixsched_held_lanes (ready_at);

-- The heads of the gated lanes over all shards: limit|… and quota|…; actions that wait for no gate are not in it.
create index if not exists matrixsched_processing_queue_gated
    on matrixsched_processing_queue (lane, scheduled_at, expires_at, shard_id)
    where lane >= 'limit|' and lane < 'quota}';

-- The order of a lane is by the time a row is due, then by the end of its time; without an end it comes last, which for
-- SQLite has to be said.
drop index matrixsched_processing_queue_due;
create index matrixsched_processing_queue_due
    on matrixsched_processing_queue (shard_id, lane, scheduled_at, coalesce(expires_at, 9223372036854775807));

-- The live actions of a template: to stop a campaign, and to foresee how it goes on.
create index if not exists matrixsched_scheduled_actions_template
    on matrixsched_scheduled_actions (template, shard_id, action_id) where template is not null and state = 'live';

insert into matrixsched_chores (name) values ('lanes'), ('plan');
