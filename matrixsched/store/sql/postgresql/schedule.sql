-- schedule (postgresql). Promise: each request is carried out once, however often and however late it is sent: only rows
-- whose request is new are written, each action with its guid and exactly one incoming row. Returns the actions written.
-- Of those in :noted that are written the guids are among the requests, too (carried_out).
-- A value that all of them have may be given once, for the first, as an array of one (`column` in rows.py);
-- where none has one, null may stand for the array (`sparse_column`).
-- With :only_if_new nothing is written if an action of any of the ids is there when the statement begins.
-- Waits for other writers of the same ids, at most lock_timeout (none given: as the caller's transaction says).
with patience as materialized (
    select set_config('lock_timeout', cast(:lock_timeout as text), true) where cast(:lock_timeout as text) is not null
),
taken as materialized (
    select from unnest(cast(:shard_ids as integer[]), cast(:action_ids as text[])) as k (shard_id, action_id)
     cross join lateral (
           select from matrixsched.scheduled_actions s
            where s.shard_id = k.shard_id and s.action_id = k.action_id
            limit 1) as found
     where cast(:only_if_new as boolean)
     limit 1
),
request as (
    insert into matrixsched.requests (request_guid, created_at)
    select distinct r.request_guid, {now}
      from unnest(cast(:request_guids as uuid[])) as r (request_guid)
     where (select count(*) from patience) >= 0 and not exists (select from taken)
           /* pause point: schedule_request */
    on conflict do nothing
    returning request_guid
),
given as materialized (
    select g.*, -- a delay is in days of 24 hours, wherever the session is; after an instant it moves the run, not the tick
           coalesce(g.at, ({now} at time zone 'UTC' + g.delay) at time zone 'UTC') as tick_at,
           (coalesce(g.at, {now}) at time zone 'UTC' + g.delay) at time zone 'UTC' as scheduled_at
      from (select c.shard_id, c.action_id, c.action_guid, c.payload, c.template, c.zone, c.expires_at, c.at,
                   coalesce(c.request_guid, (cast(:request_guids as uuid[]))[1]) as request_guid,
                   coalesce(c.handler, (cast(:handlers as text[]))[1]) as handler,
                   coalesce(c.terms, (cast(:terms as text[]))[1]) as terms,
                   coalesce(c.lane, (cast(:lanes as text[]))[1]) as lane,
                   coalesce(c.priority, (cast(:priorities as integer[]))[1]) as priority,
                   coalesce(c.delay, (cast(:delays as interval[]))[1]) as delay
              from unnest(
                       cast(:shard_ids as integer[]), cast(:action_ids as text[]), cast(:action_guids as uuid[]),
                       cast(:request_guids as uuid[]), cast(:handlers as text[]), cast(:payloads as bytea[]),
                       cast(:terms as text[]), cast(:lanes as text[]), cast(:priorities as integer[]),
                       cast(:templates as text[]), cast(:zones as text[]), cast(:expires_at as timestamptz[]),
                       cast(:ats as timestamptz[]), cast(:delays as interval[])
                   ) as c (shard_id, action_id, action_guid, request_guid, handler, payload, terms, lane, priority,
                           template, zone, expires_at, at, delay)) g
     where g.request_guid in (select request_guid from request)
),
written as (
    insert into matrixsched.scheduled_actions as s
           (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, template, zone,
            expires_at, state, scheduled_at, tick, tick_at, created_at, updated_at)
    select shard_id, action_id, action_guid, cast(extract(epoch from {now}) * 1000000 as bigint), 1, handler, payload, terms,
           lane, priority, template, zone, expires_at, 'live', scheduled_at, 0, tick_at, {now}, {now}
      from given
     order by shard_id, action_id -- every multi-row write goes in this order, or two of them deadlock
    on conflict (shard_id, action_id) do update
       set action_guid = excluded.action_guid, version = greatest(s.version + 1, excluded.version),
           revision = s.revision + 1, handler = excluded.handler, payload = excluded.payload, terms = excluded.terms,
           lane = excluded.lane, priority = excluded.priority, template = excluded.template, zone = excluded.zone,
           expires_at = excluded.expires_at, state = 'live', scheduled_at = excluded.scheduled_at, tick = 0,
           tick_at = excluded.tick_at, tick_failures = 0, succeeded = 0, failed = 0, interrupted = 0,
           missed = 0, deferred = 0,
           consecutive_failures = 0, last_outcome = null, last_error = null, last_started_at = null,
           last_ended_at = null, created_at = excluded.created_at, updated_at = excluded.updated_at, finished_at = null
     where cast(:replace as boolean) and s.action_guid <> excluded.action_guid -- never queue a version twice
    returning shard_id, action_id, action_guid, revision, scheduled_at, lane, expires_at
),
queued as (
    insert into matrixsched.incoming_queue
           (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
    select shard_id, {now}, action_id, action_guid, scheduled_at, lane, expires_at from written
),
noted as (
    insert into matrixsched.requests (request_guid, created_at)
    select w.action_guid, {now} from written w where w.action_guid = any (cast(:noted as uuid[]))
    on conflict do nothing
),
told as (
    select pg_notify(cast(:channel as text),
                     case when min(shard_id) = max(shard_id) then 'actions:' || min(shard_id) else 'actions' end)
      from written
     where cast(:channel as text) is not null
    having count(*) > 0
)
select w.action_id, w.action_guid, w.revision, (select count(*) from told) as told,
       exists (select from matrixsched.processing_queue p
                where p.shard_id = w.shard_id and p.action_id = w.action_id
                  and p.claimed_by is not null and p.scheduled_at > {now}) as running
  from written w;
