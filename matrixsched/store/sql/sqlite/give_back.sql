-- give_back (sqlite). Promise: claimed rows that were never started become due again, unattempted and in their old order,
-- if they are still held exactly as named. Those that passed a gate have to pass it anew. Returns those given back.
-- If an action was changed meanwhile, its present version need not wait for them any more: `record.unblock`, in the same
-- transaction.
-- Differs from postgresql/give_back.sql: json_each instead of unnest; no row needs a lock.
update matrixsched_processing_queue as p
   set scheduled_at = h.value ->> 5, lane = iif(p.lane >= 'limit|' and p.lane < 'quota}', '', p.lane),
       claimed_by = null, rescheduled_by = h.value ->> 4, rescheduled_at = {now}
  from json_each(:held) as h
 where p.shard_id = h.value ->> 0 and p.action_id = h.value ->> 1 and p.action_guid = h.value ->> 2
   and p.attempt = h.value ->> 3 and p.claimed_by = h.value ->> 4
returning action_guid;
