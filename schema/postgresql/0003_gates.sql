-- Gates: limits for the whole fleet, templates with their quota, and the lanes in which actions wait for them.
-- Only adds. Workers that know schema 2 alone know no gates: setting the first limit or template says so in
-- installation.oldest_library.

-- A bucket of time slots: whoever claims takes the next ones, `next_slot_ns` is the first that is free.
create table matrixsched.limits (
    name          text        collate "C" primary key, -- global, handler:<name>, template:<name>, key:<key>, key:*
    requests      bigint      check (requests > 0),    -- so many …
    per_us        bigint      check (per_us > 0),      -- … in so many microseconds; both null: no rate of its own
    pool          integer     not null default 0 check (pool >= 0), -- how many slots are kept while nobody wants them
    next_slot_ns  bigint      not null default 0,      -- nanoseconds since 1970: a slot is never rounded to an earlier time
    slow_until    timestamptz,                         -- told to slow down until then, …
    slow_requests bigint      check (slow_requests > 0), -- … to this rate; null: not at all
    slow_per_us   bigint      check (slow_per_us > 0),
    slow_reason   text,
    updated_at    timestamptz not null,
    check ((requests is null) = (per_us is null)),
    check ((slow_requests is null) = (slow_per_us is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

create table matrixsched.templates (
    name            text             collate "C" primary key,
    distribution    text             not null check (distribution in ('uniform', 'morning', 'day', 'evening', 'own')),
    windows         text             not null default '[]', -- JSON: of distribution own, ["08:00","12:00"] each
    zone            text             not null,              -- of recipients that have none
    weight          double precision not null default 1 check (weight > 0),
    paused_at       timestamptz,
    paused_until    timestamptz,                            -- null while paused: until somebody resumes it
    last_served_at  timestamptz,                            -- when a window was last planned that had a share for it
    created_at      timestamptz      not null,
    updated_at      timestamptz      not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- How capacity is shared out; one row, changed while everything runs.
create table matrixsched.quota_settings (
    singleton  boolean     primary key default true check (singleton),
    settings   text        not null default '{}', -- JSON: only what differs from the defaults
    updated_at timestamptz not null default statement_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

insert into matrixsched.quota_settings (singleton) values (true);

-- A window of the quota, planned once for the whole fleet by whoever inserts it.
create table matrixsched.quota_windows (
    begins_at    timestamptz primary key,
    ends_at      timestamptz not null,
    planned_at   timestamptz not null,
    planned_by   text        not null,
    max_to_send  bigint,                -- null: no global limit
    templates    integer     not null,  -- how many of them had messages
    check (ends_at > begins_at)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What a template may send in a window; spent by the very statement that claims.
create table matrixsched.quota_grants (
    begins_at      timestamptz not null,
    template       text        collate "C" not null,
    priority       integer     not null,
    inside         boolean     not null, -- to recipients for whom it is the right time of the day
    zones          text        not null, -- JSON: the zones of which that is true
    waiting        bigint      not null, -- how many there were when the window was planned, counted as far as it mattered
    granted        bigint      not null,
    used           bigint      not null default 0,
    last_served_at timestamptz,          -- when it was last given something in this priority; it goes behind the others
    primary key (begins_at, template, priority, inside),
    check (used between 0 and granted)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Lanes in which rows wait for a gate, and when it is worth looking again. Only a hint: what is missing here is found
-- within a second or two, and what is too much costs one look.
create table matrixsched.held_lanes (
    lane      text        collate "C" primary key,
    priority  integer     not null,
    handler   text        collate "C" not null,
    ready_at  timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index held_lanes_ready on matrixsched.held_lanes (ready_at);

-- The heads of the gated lanes over all shards: limit|… and quota|…; actions that wait for no gate are not in it.
create index if not exists processing_queue_gated
    on matrixsched.processing_queue (lane, scheduled_at, expires_at)
    include (shard_id)
    where lane >= 'limit|' and lane < 'quota}';

-- The live actions of a template: to stop a campaign, and to foresee how it goes on.
create index if not exists scheduled_actions_template
    on matrixsched.scheduled_actions (template, shard_id, action_id) where template is not null and state = 'live';

insert into matrixsched.chores (name) values ('lanes'), ('plan');
