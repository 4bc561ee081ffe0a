-- extend (sqlite). Promise: prolongs the leases of attempts that are still held exactly as named, never past an attempt's
-- own end. Returns those prolonged; the others are lost.
-- Differs from postgresql/extend.sql: nothing can be busy.
update matrixsched_processing_queue as p
   set scheduled_at = min({now} + :attempt_lease, p.claimed_at + (h.value ->> 5))
  from json_each(:held) as h
 where p.shard_id = h.value ->> 0 and p.action_id = h.value ->> 1 and p.action_guid = h.value ->> 2
   and p.attempt = h.value ->> 3 and p.claimed_by = h.value ->> 4
returning action_guid;
