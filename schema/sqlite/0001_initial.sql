-- The first schema. Written for the default installation (prefix matrixsched_); the prefix is replaced for others.
-- What each table is for and who writes it: schema/README.md.
-- Differs from postgresql/0001_initial.sql: times are integer microseconds since 1970 UTC, guids are text.

create table matrixsched_installation (
    singleton       integer primary key default 1 check (singleton = 1),
    shard_count     integer not null check (shard_count between 1 and 4096),
    schema_version  integer not null,
    oldest_library  integer not null, -- the lowest schema version a library must know to work here
    created_at      integer not null
);

create table matrixsched_scheduled_actions (
    shard_id             integer not null,
    action_id            text    not null,
    action_guid          text    not null,
    version              integer not null,
    revision             integer not null,
    handler              text    not null,
    payload              blob    not null,
    terms                text    not null, -- JSON: retry, repeat, timeout, start_within where the caller set them
    lane                 text    not null,
    priority             integer not null,
    template             text,
    zone                 text,
    expires_at           integer,
    state                text    not null,
    scheduled_at         integer not null,
    tick                 integer not null,
    tick_at              integer not null,
    tick_failures        integer not null default 0,
    succeeded            integer not null default 0,
    failed               integer not null default 0,
    interrupted          integer not null default 0,
    missed               integer not null default 0,
    deferred             integer not null default 0, -- attempts that asked to be retried later or to be cancelled
    consecutive_failures integer not null default 0,
    last_outcome         text,
    last_error           text,
    last_started_at      integer,
    last_ended_at        integer,
    created_at           integer not null,
    updated_at           integer not null,
    finished_at          integer,
    primary key (shard_id, action_id),
    check (length(cast(action_id as blob)) between 1 and 256),
    -- One by one: for a list SQLite builds a temporary table on every row that is written.
    check (state = 'live' or state = 'done' or state = 'failed' or state = 'cancelled' or state = 'expired'
           or state = 'quarantined'),
    check ((state = 'live') = (finished_at is null)),
    check (min(succeeded, failed, interrupted, missed, deferred, consecutive_failures, tick_failures) >= 0)
) without rowid;

-- Pruning reads only what is finished, oldest first.
create index matrixsched_scheduled_actions_finished
    on matrixsched_scheduled_actions (finished_at) where finished_at is not null;

create table matrixsched_incoming_queue (
    shard_id      integer not null,
    created_at    integer not null,
    action_id     text    not null,
    action_guid   text    not null,
    scheduled_at  integer not null,
    lane          text    not null,
    expires_at    integer,
    primary key (shard_id, created_at, action_id, action_guid)
) without rowid;

create table matrixsched_processing_queue (
    shard_id        integer not null,
    action_id       text    not null,
    action_guid     text    not null,
    lane            text    not null,
    scheduled_at    integer not null, -- when it is due; while claimed: when the attempt's lease ends
    expires_at      integer,
    attempt         integer not null check (attempt >= 0),     -- rises for the life of the row, is never reset
    interrupted     integer not null check (interrupted >= 0), -- interruptions since an outcome was last recorded
    claimed_by      text,    -- sync guid of the attempt under way; still set when due: the attempt was interrupted
    claimed_at      integer,
    added_at        integer not null, -- SPEC: added_to_incoming_queue_at
    moved_by        text    not null, -- moved_from_incoming_to_processing_queue_by_sync_with_guid
    moved_at        integer not null, -- moved_from_incoming_to_processing_queue_at
    rescheduled_by  text,             -- last_reschedule_by_sync_with_guid
    rescheduled_at  integer,          -- last_reschedule_at
    primary key (shard_id, action_id, action_guid),
    check (claimed_by is null or (claimed_at is not null and attempt > 0))
) without rowid;

create index matrixsched_processing_queue_due
    on matrixsched_processing_queue (shard_id, lane, scheduled_at, expires_at);

create table matrixsched_shard_locks (
    shard_id                  integer primary key,
    locked                    integer not null default 0 check (locked in (0, 1)),
    last_lock_guid            text    not null unique,
    last_locked_by            text,
    last_processing_start_at  integer not null default 0,
    last_heartbeat_at         integer not null default 0
);

create table matrixsched_requests (
    request_guid  text    primary key,
    created_at    integer not null
) without rowid;

create index matrixsched_requests_created on matrixsched_requests (created_at);

create table matrixsched_attempt_history (
    shard_id     integer not null,
    action_id    text    not null,
    action_guid  text    not null,
    attempt      integer not null,
    tick         integer not null,
    outcome      text    not null,
    error        text,
    claimed_by   text    not null,
    started_at   integer not null,
    ended_at     integer not null,
    primary key (shard_id, action_id, action_guid, attempt)
) without rowid;

create view matrixsched_readable_actions as
select action_id, action_guid, shard_id, handler, cast(payload as text) as payload, terms, state,
       strftime('%Y-%m-%d %H:%M:%f', scheduled_at / 1000000.0, 'unixepoch') as scheduled_at,
       succeeded, failed, interrupted, missed, consecutive_failures, last_outcome, last_error,
       strftime('%Y-%m-%d %H:%M:%f', finished_at / 1000000.0, 'unixepoch') as finished_at
  from matrixsched_scheduled_actions;
