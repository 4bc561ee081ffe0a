-- record (postgresql). Promise: an outcome is written only by the attempt that still holds its row, over the version of the
-- action it ran, together with the row's next time or its removal. Never waits for a user's transaction. Answers for each:
--   recorded    written, once
--   superseded  the action was replaced, moved or cancelled meanwhile: kept in the history only; the new version may run,
--               at once after `unblock`
--   lost        the row is no longer held by this attempt: nothing is written
--   busy        a transaction holds the action, or the row of a superseded attempt: nothing is written, send it again
-- A value that all of them have may be given once, for the first, as an array of one (`column` in rows.py);
-- where none has one, null may stand for the array (`sparse_column`).
with ended as materialized (
    select e.*, -- a delay is in days of 24 hours, wherever the session is
           coalesce(e.next_at, ({now} at time zone 'UTC' + e.delay) at time zone 'UTC') as begins_at
      from (select coalesce(c.shard_id, (cast(:shard_ids as integer[]))[1]) as shard_id, c.action_id, c.action_guid,
                   coalesce(c.attempt, (cast(:attempts as integer[]))[1]) as attempt,
                   coalesce(c.claimed_by, (cast(:claimed_by as uuid[]))[1]) as claimed_by,
                   coalesce(c.outcome, (cast(:outcomes as text[]))[1]) as outcome,
                   coalesce(c.state, (cast(:states as text[]))[1]) as state,
                   coalesce(c.tick, (cast(:ticks as bigint[]))[1]) as tick,
                   coalesce(c.tick_at, (cast(:tick_at as timestamptz[]))[1]) as tick_at,
                   coalesce(c.tick_failures, (cast(:tick_failures as integer[]))[1]) as tick_failures,
                   c.next_at, c.delay, c.error
              from unnest(
                       cast(:shard_ids as integer[]), cast(:action_ids as text[]), cast(:action_guids as uuid[]),
                       cast(:attempts as integer[]), cast(:claimed_by as uuid[]), cast(:outcomes as text[]),
                       cast(:states as text[]), cast(:ticks as bigint[]), cast(:tick_at as timestamptz[]),
                       cast(:tick_failures as integer[]), cast(:next_at as timestamptz[]), cast(:delays as interval[]),
                       cast(:errors as text[])
                   ) as c (shard_id, action_id, action_guid, attempt, claimed_by, outcome, state, tick, tick_at,
                           tick_failures, next_at, delay, error)) e
),
found as materialized ( -- with the action's state where it is still the version that was run, as the snapshot shows it
    select e.*, a.state as found_state
      from ended e
      left join lateral (select a.state from matrixsched.scheduled_actions a
                          where a.shard_id = {e.shard_id} and a.action_id = e.action_id and a.action_guid = e.action_guid
                         offset 0) a on true
),
current as materialized (
    select f.*, a.tick as tick_before, a.lane
      from (select * from found
             where found_state = 'live'
                   /* pause point: record_lock */
             order by shard_id, action_id collate "C") f
     cross join lateral (select a.tick, a.lane
                           from matrixsched.scheduled_actions a
                          where a.shard_id = {f.shard_id} and a.action_id = f.action_id
                            and a.action_guid = f.action_guid and a.state = 'live'
                            for no key update of a skip locked) a
),
finished as (
    delete from matrixsched.processing_queue p
     using current c
     where c.state <> 'live'
       and p.shard_id = {c.shard_id} and p.action_id = c.action_id and p.action_guid = c.action_guid
       and p.attempt = c.attempt and p.claimed_by = c.claimed_by
    returning c.shard_id, c.action_id, c.action_guid, c.attempt, c.claimed_by, c.outcome, c.state, c.tick, c.tick_at,
              c.tick_failures, c.begins_at, c.error, c.tick_before, p.interrupted, p.claimed_at
),
again as (
    update matrixsched.processing_queue p
       set scheduled_at = c.begins_at, lane = case when c.lane = 'event' then c.lane else '' end, interrupted = 0,
           claimed_by = null, rescheduled_by = c.claimed_by, rescheduled_at = {now}
      from current c
      -- The old row is read once more for its count of interruptions, which the update sets to zero. Safe: only the
      -- statement that also changes attempt or claimed_by changes that count.
      join matrixsched.processing_queue o
        on o.shard_id = {c.shard_id} and o.action_id = c.action_id and o.action_guid = c.action_guid
     where c.state = 'live'
       and p.shard_id = {c.shard_id} and p.action_id = c.action_id and p.action_guid = c.action_guid
       and p.attempt = c.attempt and p.claimed_by = c.claimed_by
    returning c.shard_id, c.action_id, c.action_guid, c.attempt, c.claimed_by, c.outcome, c.state, c.tick, c.tick_at,
              c.tick_failures, c.begins_at, c.error, c.tick_before, o.interrupted, p.claimed_at
),
held as (
    select * from finished
    union all
    select * from again
),
recorded as (
    update matrixsched.scheduled_actions a
       set state = h.state, finished_at = case when h.state = 'live' then null else {now} end,
           scheduled_at = case when h.state = 'live' then h.begins_at else a.scheduled_at end,
           tick = h.tick, tick_at = h.tick_at, tick_failures = h.tick_failures,
           succeeded = a.succeeded + cast(h.outcome = 'succeeded' as integer),
           failed = a.failed + cast(h.outcome in ('failed', 'timed_out') as integer),
           missed = a.missed + cast(h.outcome = 'missed' as integer),
           deferred = a.deferred + cast(h.outcome in ('retried', 'cancelled') as integer),
           interrupted = a.interrupted + h.interrupted + cast(h.outcome = 'interrupted' as integer),
           consecutive_failures = case when h.outcome = 'succeeded' then 0
                                       when h.outcome in ('failed', 'timed_out') then a.consecutive_failures + 1
                                       else a.consecutive_failures end,
           last_outcome = h.outcome, last_error = h.error, last_started_at = h.claimed_at, last_ended_at = {now}
      from held h
     where a.shard_id = {h.shard_id} and a.action_id = h.action_id and a.action_guid = h.action_guid
    returning a.action_guid
),
superseded as materialized ( -- a move or claim that looks at the row now puts the new version behind it: busy
    select p.*, f.tick, f.outcome
      from (select * from found where found_state is null) f
     cross join lateral (select p.shard_id, p.action_id, p.action_guid, p.attempt, p.claimed_by, p.claimed_at
                           from matrixsched.processing_queue p
                          where p.shard_id = {f.shard_id} and p.action_id = f.action_id and p.action_guid = f.action_guid
                            and p.attempt = f.attempt and p.claimed_by = f.claimed_by
                            for update of p skip locked) p
),
removed as (
    delete from matrixsched.processing_queue p
     using superseded s
     where p.shard_id = {s.shard_id} and p.action_id = s.action_id and p.action_guid = s.action_guid
    returning s.*
),
outlived as materialized ( -- the last :history_max of an action are kept, the one remembered just now among them
    select old.*
      from (select shard_id, action_id,
                   cast(:history_max as integer)
                   - cast(outcome in ('failed', 'timed_out', 'interrupted') as integer) as keep
              from held
             where outcome in ('failed', 'timed_out', 'interrupted') or interrupted > 0 -- remembered by claims
            union all
            select shard_id, action_id, cast(:history_max as integer) - 1 from removed) n
     cross join lateral (select {place of k} as ctid, k.action_id, k.action_guid, k.attempt
                           from matrixsched.attempt_history k
                          where k.shard_id = {n.shard_id} and k.action_id = n.action_id
                          order by k.ended_at desc, k.attempt desc
                         offset n.keep) old
),
remembered as (
    insert into matrixsched.attempt_history
           (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
    select {shard_id}, action_id, action_guid, attempt, tick_before, outcome, error, claimed_by, claimed_at, {now}
      from held
     where outcome in ('failed', 'timed_out', 'interrupted')
    union all
    select {shard_id}, action_id, action_guid, attempt, tick, 'superseded', outcome, claimed_by, claimed_at, {now}
      from removed
    on conflict do nothing
),
forgotten as (
    delete from matrixsched.attempt_history where {place in outlived by action_id, action_guid, attempt}
)
select f.action_guid,
       case when f.action_guid in (select action_guid from recorded) then 'recorded'
            when f.found_state is null
                then case when f.action_guid not in (select action_guid from removed)
                           and exists (select from matrixsched.processing_queue p
                                        where p.shard_id = {f.shard_id} and p.action_id = f.action_id
                                          and p.action_guid = f.action_guid and p.attempt = f.attempt
                                          and p.claimed_by = f.claimed_by)
                          then 'busy' else 'superseded' end
            -- Finished: by a twin of this statement.
            when f.found_state <> 'live' or f.action_guid in (select action_guid from current) then 'lost'
            else 'busy' end as answer
  from found f;
