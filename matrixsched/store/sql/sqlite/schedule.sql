-- schedule (sqlite). Promise: each request is carried out once, however often and however late it is sent: only rows
-- whose request is new are written, each action with its guid and exactly one incoming row. Of some that are written the
-- guids are among the requests, too (carried_out).
-- Differs from postgresql/schedule.sql: several statements in one transaction; no lock timeout (there is one writer), no
-- NOTIFY (workers watch data_version). `judge` says what is there, for RETURNING would double the price of `write`.
-- With only_if_new it is asked first, for all ids. `write` runs once for each row, for JSON carries no payload bytes.

-- name: request
insert into matrixsched_requests (request_guid, created_at)
select distinct r.value, {now}
  from json_each(:request_guids) as r
 where true
on conflict do nothing
returning request_guid;

-- name: judge
select w.key as number, a.action_guid,
       exists (select 1 from matrixsched_processing_queue p
                where p.shard_id = w.value ->> 0 and p.action_id = w.value ->> 1
                  and p.claimed_by is not null and p.scheduled_at > {now}) as running
  from json_each(:keys) as w
  left join matrixsched_scheduled_actions a on a.shard_id = w.value ->> 0 and a.action_id = w.value ->> 1;

-- name: write
insert into matrixsched_scheduled_actions as s
       (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, template, zone,
        expires_at, state, scheduled_at, tick, tick_at, created_at, updated_at)
values (:shard_id, :action_id, :action_guid, {now}, 1, :handler, :payload, :terms, :lane, :priority, :template, :zone,
        :expires_at, 'live', :scheduled_at, 0, :tick_at, {now}, {now})
on conflict (shard_id, action_id) do update
   set action_guid = excluded.action_guid, version = max(s.version + 1, excluded.version),
       revision = s.revision + 1, handler = excluded.handler, payload = excluded.payload, terms = excluded.terms,
       lane = excluded.lane, priority = excluded.priority, template = excluded.template, zone = excluded.zone,
       expires_at = excluded.expires_at, state = 'live', scheduled_at = excluded.scheduled_at, tick = 0,
       tick_at = excluded.tick_at, tick_failures = 0, succeeded = 0, failed = 0, interrupted = 0,
       missed = 0, deferred = 0,
       consecutive_failures = 0, last_outcome = null, last_error = null, last_started_at = null,
       last_ended_at = null, created_at = excluded.created_at, updated_at = excluded.updated_at, finished_at = null;

-- name: queue
insert into matrixsched_incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select a.shard_id, {now}, a.action_id, a.action_guid, a.scheduled_at, a.lane, a.expires_at
  from json_each(:written) as w
 cross join matrixsched_scheduled_actions a on a.shard_id = w.value ->> 0 and a.action_id = w.value ->> 1;
