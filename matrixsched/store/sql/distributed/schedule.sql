-- schedule (distributed). Promise: as that of PostgreSQL, for the actions of one shard. The requests bear the shard: one of
-- actions in several shards is noted in each, in one transaction. Asked shard after shard, in their order.

-- name: taken
-- Whether an action of any of these ids is there.
select true as taken
  from matrixsched.scheduled_actions s
 where s.shard_id = cast(:shard_id as integer) and s.action_id = any (cast(:action_ids as text[]))
 limit 1;

-- name: write
with request as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select distinct cast(:shard_id as integer), r.request_guid, {now}
      from unnest(cast(:request_guids as uuid[])) as r (request_guid)
     where r.request_guid is not null
           /* pause point: schedule_request */
    on conflict do nothing
    returning request_guid
),
given as materialized (
    select g.*, -- a delay is in days of 24 hours, wherever the session is; after an instant it moves the run, not the tick
           coalesce(g.at, ({now} at time zone 'UTC' + g.delay) at time zone 'UTC') as tick_at,
           (coalesce(g.at, {now}) at time zone 'UTC' + g.delay) at time zone 'UTC' as scheduled_at
      from (select c.action_id, c.action_guid, c.payload, c.template, c.zone, c.expires_at, c.at,
                   coalesce(c.request_guid, (cast(:request_guids as uuid[]))[1]) as request_guid,
                   coalesce(c.handler, (cast(:handlers as text[]))[1]) as handler,
                   coalesce(c.terms, (cast(:terms as text[]))[1]) as terms,
                   coalesce(c.lane, (cast(:lanes as text[]))[1]) as lane,
                   coalesce(c.priority, (cast(:priorities as integer[]))[1]) as priority,
                   coalesce(c.delay, (cast(:delays as interval[]))[1]) as delay
              from unnest(
                       cast(:action_ids as text[]), cast(:action_guids as uuid[]), cast(:request_guids as uuid[]),
                       cast(:handlers as text[]), cast(:payloads as bytea[]), cast(:terms as text[]),
                       cast(:lanes as text[]), cast(:priorities as integer[]), cast(:templates as text[]),
                       cast(:zones as text[]), cast(:expires_at as timestamptz[]), cast(:ats as timestamptz[]),
                       cast(:delays as interval[])
                   ) as c (action_id, action_guid, request_guid, handler, payload, terms, lane, priority, template,
                           zone, expires_at, at, delay)) g
     where g.request_guid in (select request_guid from request)
),
written as (
    insert into matrixsched.scheduled_actions as s
           (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, template, zone,
            expires_at, state, scheduled_at, tick, tick_at, created_at, updated_at)
    select cast(:shard_id as integer), action_id, action_guid, cast(extract(epoch from {now}) * 1000000 as bigint), 1,
           handler, payload, terms, lane, priority, template, zone, expires_at, 'live', scheduled_at, 0, tick_at, {now},
           {now}
      from given
     order by action_id collate "C" -- every multi-row write goes in this order, or two of them deadlock
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
    returning action_id, action_guid, revision, scheduled_at, lane, expires_at
),
queued as (
    insert into matrixsched.incoming_queue
           (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
    select cast(:shard_id as integer), {now}, action_id, action_guid, scheduled_at, lane, expires_at from written
),
noted as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select cast(:shard_id as integer), w.action_guid, {now} from written w where w.action_guid = any (cast(:noted as uuid[]))
    on conflict do nothing
)
select w.action_id, w.action_guid, w.revision,
       exists (select from matrixsched.processing_queue p
                where p.shard_id = cast(:shard_id as integer) and p.action_id = w.action_id
                  and p.claimed_by is not null and p.scheduled_at > {now}) as running
  from written w;
