-- record (postgresql). Promise: an outcome is written only by the attempt that still holds its row, over the version of the
-- action it ran, together with the row's next time or its removal. Never waits for a user's transaction. Answers for each:
--   recorded    written, once
--   superseded  the action was replaced, moved or cancelled meanwhile: kept in the history only; the new version may run
--   lost        the row is no longer held by this attempt: nothing is written
--   busy        a transaction holds the action: nothing is written, send it again
with ended as materialized (
    select e.*, -- a delay is in days of 24 hours, wherever the session is
           coalesce(e.next_at, ({now} at time zone 'UTC' + e.delay) at time zone 'UTC') as begins_at
      from unnest(
               cast(:shard_ids as integer[]), cast(:action_ids as text[]), cast(:action_guids as uuid[]),
               cast(:attempts as integer[]), cast(:claimed_by as uuid[]), cast(:outcomes as text[]),
               cast(:states as text[]), cast(:ticks as bigint[]), cast(:tick_at as timestamptz[]),
               cast(:tick_failures as integer[]), cast(:next_at as timestamptz[]), cast(:delays as interval[]),
               cast(:errors as text[])
           ) as e (shard_id, action_id, action_guid, attempt, claimed_by, outcome, state, tick, tick_at, tick_failures,
                   next_at, delay, error)
),
current as materialized (
    select a.action_guid, a.lane, a.tick
      from ended e
      join matrixsched.scheduled_actions a
        on a.shard_id = e.shard_id and a.action_id = e.action_id and a.action_guid = e.action_guid and a.state = 'live'
     order by a.shard_id, a.action_id
       /* pause point: record_lock */
       for no key update of a skip locked
),
dead as materialized (
    select e.*
      from ended e
     where not exists (select from matrixsched.scheduled_actions a
                        where a.shard_id = e.shard_id and a.action_id = e.action_id and a.action_guid = e.action_guid)
),
finished as (
    delete from matrixsched.processing_queue p
     using ended e
      join current c on c.action_guid = e.action_guid
     where e.state <> 'live'
       and p.shard_id = e.shard_id and p.action_id = e.action_id and p.action_guid = e.action_guid
       and p.attempt = e.attempt and p.claimed_by = e.claimed_by
    returning p.action_guid, p.interrupted, p.claimed_at
),
again as (
    update matrixsched.processing_queue p
       set scheduled_at = e.begins_at, lane = c.lane, interrupted = 0, claimed_by = null,
           rescheduled_by = e.claimed_by, rescheduled_at = {now}
      from ended e
      join current c on c.action_guid = e.action_guid
      -- The old row is read once more for its count of interruptions, which the update sets to zero. Safe: only the
      -- statement that also changes attempt or claimed_by changes that count.
      join matrixsched.processing_queue o
        on o.shard_id = e.shard_id and o.action_id = e.action_id and o.action_guid = e.action_guid
     where e.state = 'live'
       and p.shard_id = e.shard_id and p.action_id = e.action_id and p.action_guid = e.action_guid
       and p.attempt = e.attempt and p.claimed_by = e.claimed_by
    returning p.action_guid, o.interrupted, p.claimed_at
),
held as (
    select action_guid, interrupted, claimed_at from finished
    union all
    select action_guid, interrupted, claimed_at from again
),
recorded as (
    update matrixsched.scheduled_actions a
       set state = e.state, finished_at = case when e.state = 'live' then null else {now} end,
           scheduled_at = case when e.state = 'live' then e.begins_at else a.scheduled_at end,
           tick = e.tick, tick_at = e.tick_at, tick_failures = e.tick_failures,
           succeeded = a.succeeded + cast(e.outcome = 'succeeded' as integer),
           failed = a.failed + cast(e.outcome in ('failed', 'timed_out') as integer),
           missed = a.missed + cast(e.outcome = 'missed' as integer),
           interrupted = a.interrupted + h.interrupted + cast(e.outcome = 'interrupted' as integer),
           consecutive_failures = case when e.outcome = 'succeeded' then 0
                                       when e.outcome in ('failed', 'timed_out') then a.consecutive_failures + 1
                                       else a.consecutive_failures end,
           last_outcome = e.outcome, last_error = e.error, last_started_at = h.claimed_at, last_ended_at = {now}
      from ended e
      join held h on h.action_guid = e.action_guid
     where a.shard_id = e.shard_id and a.action_id = e.action_id and a.action_guid = e.action_guid
    returning a.action_guid
),
removed as (
    delete from matrixsched.processing_queue p
     using dead d
     where p.shard_id = d.shard_id and p.action_id = d.action_id and p.action_guid = d.action_guid
       and p.attempt = d.attempt and p.claimed_by = d.claimed_by
    returning p.shard_id, p.action_id, p.action_guid, p.claimed_at
),
unblocked as ( -- the new version waited for this attempt: its own time counts again
    update matrixsched.processing_queue p
       set scheduled_at = a.scheduled_at
      from removed r
      join matrixsched.scheduled_actions a on a.shard_id = r.shard_id and a.action_id = r.action_id
     where p.shard_id = r.shard_id and p.action_id = r.action_id and p.action_guid = a.action_guid
       and p.claimed_by is null and p.scheduled_at > a.scheduled_at
),
remembered as (
    insert into matrixsched.attempt_history
           (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
    select e.shard_id, e.action_id, e.action_guid, e.attempt, c.tick, e.outcome, e.error, e.claimed_by, h.claimed_at, {now}
      from ended e
      join held h on h.action_guid = e.action_guid
      join current c on c.action_guid = e.action_guid
     where e.outcome in ('failed', 'timed_out', 'interrupted')
    union all
    select d.shard_id, d.action_id, d.action_guid, d.attempt, d.tick, 'superseded', d.outcome, d.claimed_by, r.claimed_at, {now}
      from dead d
      join removed r on r.action_guid = d.action_guid
    on conflict do nothing
),
forgotten as ( -- the last :history_max of an action are kept, the one remembered just now among them
    delete from matrixsched.attempt_history h
     using (
         select e.shard_id, e.action_id,
                cast(:history_max as integer)
                - cast(e.outcome in ('failed', 'timed_out', 'interrupted') as integer) as keep
           from ended e
           join held h on h.action_guid = e.action_guid
          where e.outcome in ('failed', 'timed_out', 'interrupted') or h.interrupted > 0 -- remembered by claims
         union all
         select r.shard_id, r.action_id, cast(:history_max as integer) - 1 from removed r
     ) n
     cross join lateral (
         select k.action_guid, k.attempt
           from matrixsched.attempt_history k
          where k.shard_id = n.shard_id and k.action_id = n.action_id
          order by k.ended_at desc, k.attempt desc
         offset n.keep
     ) old
     where h.shard_id = n.shard_id and h.action_id = n.action_id
       and h.action_guid = old.action_guid and h.attempt = old.attempt
)
select e.action_guid,
       case when r.action_guid is not null then 'recorded'
            when d.action_guid is not null then 'superseded'
            when c.action_guid is not null or a.state <> 'live' then 'lost' -- finished: by a twin of this statement
            else 'busy' end as answer
  from ended e
  left join matrixsched.scheduled_actions a
    on a.shard_id = e.shard_id and a.action_id = e.action_id and a.action_guid = e.action_guid
  left join recorded r on r.action_guid = e.action_guid
  left join dead d on d.action_guid = e.action_guid
  left join current c on c.action_guid = e.action_guid;
