-- reschedule (distributed). Promise: a new guid and a new next time for a live action (with :revive also for a finished
-- one), once per request and unless it was called off; spec and counters stay. Interruptions counted in the queue row are
-- taken over, for that row is dead from here on. The new guid is among the requests, too (carried_out): if it is called
-- off meanwhile, the statement fails as a whole. Waits for other writers of the action, at most lock_timeout.
-- With :seen_state only if the action is as it was seen: its row is locked and gone, so that no attempt at that version begins
-- any more; if one has begun, or begins at this very moment, or has ended, nothing is written.
with wanted as materialized (
    select s.action_id, s.action_guid, s.updated_at from matrixsched.scheduled_actions s
     where s.shard_id = cast(:shard_id as integer) and s.action_id = cast(:action_id as text)
       and (s.state = 'live' or cast(:revive as boolean))
       and (cast(:expected_guid as uuid) is null or s.action_guid = cast(:expected_guid as uuid))
       and (cast(:seen_state as text) is null
            or s.state = cast(:seen_state as text)
               and s.last_ended_at is not distinct from cast(:seen_ended_at as timestamptz))
       /* pause point: reschedule_lock */
       for no key update
),
waiting as materialized ( -- only as the snapshot shows it: if it was changed since, a claim may find it as it is now
    select p.action_id, p.action_guid
      from wanted w
     cross join lateral (select p.ctid as place from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = w.action_id
                            and p.action_guid = w.action_guid
                         offset 0) s
     cross join lateral (select p.ctid, p.action_id, p.action_guid from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = w.action_id
                            and p.action_guid = w.action_guid
                            and (p.claimed_by is null or p.scheduled_at <= {now})
                            for update of p skip locked) p
     where cast(:seen_state as text) = 'live' and p.ctid = s.place
),
incoming as materialized ( -- written with the action
    select i.created_at, i.action_id, i.action_guid
      from wanted w
     cross join lateral (select i.created_at, i.action_id, i.action_guid from matrixsched.incoming_queue i
                          where i.shard_id = cast(:shard_id as integer) and i.created_at = w.updated_at
                            and i.action_id = w.action_id and i.action_guid = w.action_guid
                            for update of i skip locked) i
     where cast(:seen_state as text) = 'live'
),
lost as materialized ( -- no row stands for it, so that nobody can have begun: it is run by this
    select true as is_lost
      from wanted w
     where not exists (select from matrixsched.processing_queue p
                        where p.shard_id = cast(:shard_id as integer) and p.action_id = w.action_id
                          and p.action_guid = w.action_guid)
       and not exists (select from matrixsched.incoming_queue i
                        where i.shard_id = cast(:shard_id as integer) and i.created_at = w.updated_at
                          and i.action_id = w.action_id and i.action_guid = w.action_guid)
),
request as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select cast(:shard_id as integer), cast(:request_guid as uuid), {now} from wanted
     where not exists (select from matrixsched.action_requests r
                        where r.shard_id = cast(:shard_id as integer) and r.request_guid = cast(:action_guid as uuid))
       and (cast(:seen_state as text) is distinct from 'live'
            or exists (select from waiting) or exists (select from incoming) or exists (select from lost))
    on conflict do nothing
    returning request_guid
),
written as (
    update matrixsched.scheduled_actions s
       set action_guid = cast(:action_guid as uuid),
           version = greatest(s.version + 1, cast(extract(epoch from {now}) * 1000000 as bigint)),
           revision = s.revision + 1,
           state = 'live', finished_at = null,
           tick_failures = case when s.state = 'live' then s.tick_failures else 0 end,
           expires_at = case when s.state = 'live' then s.expires_at end,
           interrupted = s.interrupted + coalesce(
               (select p.interrupted from matrixsched.processing_queue p
                 where p.shard_id = cast(:shard_id as integer) and p.action_id = s.action_id and p.action_guid = s.action_guid), 0),
           scheduled_at = b.begins_at, tick_at = b.begins_at, updated_at = {now}
      from (select coalesce(cast(:at as timestamptz), -- or a delay, in days of 24 hours wherever the session is
                            ({now} at time zone 'UTC' + cast(:delay as interval)) at time zone 'UTC') as begins_at) b
     where s.shard_id = cast(:shard_id as integer) and s.action_id = cast(:action_id as text)
       and exists (select from request)
    returning s.action_id, s.action_guid, s.scheduled_at, s.lane, s.expires_at
),
queued as (
    insert into matrixsched.incoming_queue
           (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
    select cast(:shard_id as integer), {now}, action_id, action_guid, scheduled_at, lane, expires_at from written
),
gone_waiting as (
    delete from matrixsched.processing_queue
     where {place in waiting by action_id, action_guid}
       and exists (select from written)
),
gone_incoming as (
    delete from matrixsched.incoming_queue
     where {place in incoming by created_at, action_id, action_guid}
       and exists (select from written)
),
noted as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select cast(:shard_id as integer), w.action_guid, {now} from written w where w.action_guid <> cast(:request_guid as uuid)
)
select w.action_id, w.action_guid,
       exists (select from matrixsched.processing_queue p
                where p.shard_id = cast(:shard_id as integer) and p.action_id = w.action_id
                  and p.claimed_by is not null and p.scheduled_at > {now}) as running
  from written w;
