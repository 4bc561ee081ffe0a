-- write_limit (sqlite). Promise: a limit is changed by one at a time: what it says is read, and what follows from it is
-- written, in one write transaction.
-- Differs from postgresql/write_limit.sql: there is only one writer, so nothing is locked.

-- name: hold
-- The row as it is; made, without a rate, if there is none.
insert into matrixsched_limits (name, updated_at) values (:limit_name, {now})
on conflict (name) do update set updated_at = {now}
returning *;

-- name: lock
select * from matrixsched_limits where name = :limit_name;

-- name: write
update matrixsched_limits
   set requests = :requests, per_us = :per_us, pool = :pool, next_slot_ns = :next_slot_ns, slow_until = :slow_until,
       slow_requests = :slow_requests, slow_per_us = :slow_per_us, slow_reason = :slow_reason, updated_at = {now}
 where name = :limit_name;

-- name: keys
-- Keys that go at the rate of key:* wait for their next slot no longer than its period.
update matrixsched_limits
   set next_slot_ns = :first_slot_ns
 where name > 'key:' and name < 'key;' and name <> 'key:*'
   and requests is null and next_slot_ns > :first_slot_ns
   and (slow_until is null or slow_until <= {now});
