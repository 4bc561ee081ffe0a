-- give_back (postgresql). Promise: claimed rows that were never started become due again, unattempted and in their old
-- order, if they are still held exactly as named. Those that passed a gate have to pass it anew. Returns those given back.
-- If an action was changed meanwhile, its present version need not wait for them any more: at once after `unblock`.
with held as materialized (
    select * from unnest(
        cast(:shard_ids as integer[]), cast(:action_ids as text[]), cast(:action_guids as uuid[]),
        cast(:attempts as integer[]), cast(:claimed_by as uuid[]), cast(:due_at as timestamptz[])
    ) as h (shard_id, action_id, action_guid, attempt, claimed_by, due_at)
),
mine as materialized (
    select p.shard_id, p.action_id, p.action_guid, h.due_at, h.claimed_by
      from held h
      join matrixsched.processing_queue p
        on p.shard_id = {h.shard_id} and p.action_id = h.action_id and p.action_guid = h.action_guid
       and p.attempt = h.attempt and p.claimed_by = h.claimed_by
       /* pause point: give_back_lock */
       for update of p skip locked
)
update matrixsched.processing_queue p
   set scheduled_at = m.due_at, lane = case when p.lane >= 'limit|' and p.lane < 'quota}' then '' else p.lane end,
       claimed_by = null, rescheduled_by = m.claimed_by, rescheduled_at = {now}
  from mine m
 where p.shard_id = {m.shard_id} and p.action_id = m.action_id and p.action_guid = m.action_guid
returning p.action_guid;
