-- replace_expected (distributed). Promise: as schedule, but only over an action that is still at the guid the caller read.
-- The new guid is among the requests, too (carried_out). Waits for other writers of the action, at most lock_timeout.
with wanted as materialized (
    select true as wanted from matrixsched.scheduled_actions s
     where s.shard_id = cast(:shard_id as integer) and s.action_id = cast(:action_id as text)
       and s.action_guid = cast(:expected_guid as uuid)
       /* pause point: replace_expected_lock */
       for no key update
),
request as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select cast(:shard_id as integer), cast(:request_guid as uuid), {now} from wanted
    on conflict do nothing
    returning request_guid
),
written as (
    update matrixsched.scheduled_actions s
       set action_guid = cast(:action_guid as uuid),
           version = greatest(s.version + 1, cast(extract(epoch from {now}) * 1000000 as bigint)),
           revision = s.revision + 1, handler = cast(:handler as text), payload = cast(:payload as bytea),
           terms = cast(:terms as text), lane = cast(:lane as text), priority = cast(:priority as integer),
           template = cast(:template as text), zone = cast(:zone as text),
           expires_at = cast(:expires_at as timestamptz), state = 'live',
           scheduled_at = b.begins_at, tick = 0, tick_at = b.tick_at, tick_failures = 0,
           succeeded = 0, failed = 0, interrupted = 0, missed = 0, deferred = 0,
           consecutive_failures = 0, last_outcome = null,
           last_error = null, last_started_at = null, last_ended_at = null, created_at = {now}, updated_at = {now},
           finished_at = null
      from (select coalesce(cast(:at as timestamptz), -- or a delay, in days of 24 hours wherever the session is
                            ({now} at time zone 'UTC' + cast(:delay as interval)) at time zone 'UTC') as tick_at,
                   (coalesce(cast(:at as timestamptz), {now}) at time zone 'UTC' + cast(:delay as interval))
                   at time zone 'UTC' as begins_at) b
     where s.shard_id = cast(:shard_id as integer) and s.action_id = cast(:action_id as text)
       and exists (select from request)
    returning s.action_id, s.action_guid, s.revision, s.scheduled_at, s.lane, s.expires_at
),
queued as (
    insert into matrixsched.incoming_queue
           (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
    select cast(:shard_id as integer), {now}, action_id, action_guid, scheduled_at, lane, expires_at from written
),
noted as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select cast(:shard_id as integer), w.action_guid, {now} from written w where w.action_guid <> cast(:request_guid as uuid)
    on conflict do nothing
)
select w.action_id, w.action_guid, w.revision,
       exists (select from matrixsched.processing_queue p
                where p.shard_id = cast(:shard_id as integer) and p.action_id = w.action_id
                  and p.claimed_by is not null and p.scheduled_at > {now}) as running
  from written w;
