-- The first schema. Written for the default installation (schema matrixsched); the name is replaced for others.
-- What each table is for and who writes it: schema/README.md.

create table matrixsched.installation (
    singleton       boolean     primary key default true check (singleton),
    shard_count     integer     not null check (shard_count between 1 and 4096),
    schema_version  integer     not null,
    oldest_library  integer     not null, -- the lowest schema version a library must know to work here
    created_at      timestamptz not null default statement_timestamp()
);

create table matrixsched.scheduled_actions (
    shard_id             integer     not null,
    action_id            text        collate "C" not null,
    action_guid          uuid        not null,
    version              bigint      not null,
    revision             integer     not null,
    handler              text        collate "C" not null,
    payload              bytea       not null,
    terms                text        not null, -- JSON: retry, repeat, timeout, start_within where the caller set them
    lane                 text        collate "C" not null,
    priority             integer     not null,
    template             text        collate "C",
    zone                 text,
    expires_at           timestamptz,
    state                text        not null,
    scheduled_at         timestamptz not null,
    tick                 bigint      not null,
    tick_at              timestamptz not null,
    tick_failures        integer     not null default 0,
    succeeded            bigint      not null default 0,
    failed               bigint      not null default 0,
    interrupted          bigint      not null default 0,
    missed               bigint      not null default 0,
    deferred             bigint      not null default 0, -- attempts that asked to be retried later or to be cancelled
    consecutive_failures integer     not null default 0,
    last_outcome         text,
    last_error           text,
    last_started_at      timestamptz,
    last_ended_at        timestamptz,
    created_at           timestamptz not null,
    updated_at           timestamptz not null,
    finished_at          timestamptz,
    primary key (shard_id, action_id),
    check (octet_length(action_id) between 1 and 256),
    check (state in ('live', 'done', 'failed', 'cancelled', 'expired', 'quarantined')),
    check ((state = 'live') = (finished_at is null)),
    check (least(succeeded, failed, interrupted, missed, deferred, consecutive_failures, tick_failures) >= 0)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- Pruning reads only what is finished, oldest first.
create index scheduled_actions_finished on matrixsched.scheduled_actions (finished_at) where finished_at is not null;

create table matrixsched.incoming_queue (
    shard_id      integer     not null,
    created_at    timestamptz not null,
    action_id     text        collate "C" not null,
    action_guid   uuid        not null,
    scheduled_at  timestamptz not null,
    lane          text        collate "C" not null,
    expires_at    timestamptz,
    primary key (shard_id, created_at, action_id, action_guid)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

create table matrixsched.processing_queue (
    shard_id        integer     not null,
    action_id       text        collate "C" not null,
    action_guid     uuid        not null,
    lane            text        collate "C" not null,
    scheduled_at    timestamptz not null, -- when it is due; while claimed: when the attempt's lease ends
    expires_at      timestamptz,
    attempt         integer     not null check (attempt >= 0),     -- rises for the life of the row, is never reset
    interrupted     integer     not null check (interrupted >= 0), -- interruptions since an outcome was last recorded
    claimed_by      uuid,        -- sync guid of the attempt under way; still set when due: the attempt was interrupted
    claimed_at      timestamptz,
    added_at        timestamptz not null, -- SPEC: added_to_incoming_queue_at
    moved_by        uuid        not null, -- moved_from_incoming_to_processing_queue_by_sync_with_guid
    moved_at        timestamptz not null, -- moved_from_incoming_to_processing_queue_at
    rescheduled_by  uuid,                 -- last_reschedule_by_sync_with_guid
    rescheduled_at  timestamptz,          -- last_reschedule_at
    primary key (shard_id, action_id, action_guid),
    check (claimed_by is null or (claimed_at is not null and attempt > 0))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

create index processing_queue_due on matrixsched.processing_queue (shard_id, lane, scheduled_at, expires_at);

create table matrixsched.shard_locks (
    shard_id                  integer     primary key,
    locked                    boolean     not null default false,
    -- Plain UNIQUE on purpose: it makes the guid a key column, so that a takeover conflicts with FOR KEY SHARE (the
    -- fence of move and claim) and a heartbeat does not. A partial index, or none, opens the fence.
    last_lock_guid            uuid        not null unique default gen_random_uuid(),
    last_locked_by            text,
    last_processing_start_at  timestamptz not null default '1970-01-01 00:00:00+00',
    last_heartbeat_at         timestamptz not null default '1970-01-01 00:00:00+00'
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

create table matrixsched.requests (
    request_guid  uuid        primary key,
    created_at    timestamptz not null
);

create index requests_created on matrixsched.requests (created_at);

create table matrixsched.attempt_history (
    shard_id     integer     not null,
    action_id    text        collate "C" not null,
    action_guid  uuid        not null,
    attempt      integer     not null,
    tick         bigint      not null,
    outcome      text        not null,
    error        text,
    claimed_by   uuid        not null,
    started_at   timestamptz not null,
    ended_at     timestamptz not null,
    primary key (shard_id, action_id, action_guid, attempt)
);

create view matrixsched.readable_actions as
select action_id, action_guid, shard_id, handler, convert_from(payload, 'UTF8') as payload, terms, state, scheduled_at,
       succeeded, failed, interrupted, missed, consecutive_failures, last_outcome, last_error, finished_at
  from matrixsched.scheduled_actions;
