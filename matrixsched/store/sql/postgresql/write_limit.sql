-- write_limit (postgresql). Promise: a limit is changed by one at a time: its row is locked from the reading of what it
-- says to the end of the transaction, in which what follows from it is written.

-- name: hold
-- The row as it is; made, without a rate, if there is none.
insert into matrixsched.limits (name, updated_at) values (cast(:limit_name as text), {now})
on conflict (name) do update set updated_at = {now}
returning *, {now} as now;

-- name: lock
select *, {now} as now
  from matrixsched.limits
 where name = cast(:limit_name as text)
   for update;

-- name: write
update matrixsched.limits
   set requests = cast(:requests as bigint), per_us = cast(:per_us as bigint), pool = cast(:pool as integer),
       next_slot_ns = cast(:next_slot_ns as bigint), slow_until = cast(:slow_until as timestamptz),
       slow_requests = cast(:slow_requests as bigint), slow_per_us = cast(:slow_per_us as bigint),
       slow_reason = cast(:slow_reason as text), updated_at = {now}
 where name = cast(:limit_name as text);

-- name: keys
-- Keys that go at the rate of key:* wait for their next slot no longer than its period.
with waiting as materialized (
    select name from matrixsched.limits
     where name > 'key:' and name < 'key;' and name <> 'key:*'
       and requests is null and next_slot_ns > cast(:first_slot_ns as bigint)
       and (slow_until is null or slow_until <= {now})
     order by name
       for update
)
update matrixsched.limits l set next_slot_ns = cast(:first_slot_ns as bigint) from waiting w where l.name = w.name;
