-- bind_requests (postgresql). Promise: of the requests of one name the first that is committed decides what that name asks
-- for: beside it a guid that was made of this is kept. Returns those that are the first; of another one `carried_out` tells
-- by that guid whether the first asked for the same. A statement of its own, as that, for this one does not see what has been
-- committed since it began. Waits for requests of the same names, at most lock_timeout (none given: as the transaction says).
with patience as materialized (
    select set_config('lock_timeout', cast(:lock_timeout as text), true) where cast(:lock_timeout as text) is not null
),
given as materialized (
    select g.request_guid, g.asks_for
      from unnest(cast(:request_guids as uuid[]), cast(:asks_for as uuid[])) as g (request_guid, asks_for)
     where (select count(*) from patience) >= 0
),
first as (
    insert into matrixsched.requests (request_guid, created_at)
    select request_guid, {now} from given
     order by request_guid -- every multi-row write goes in one order, or two of them deadlock
    on conflict do nothing
    returning request_guid
),
bound as (
    insert into matrixsched.requests (request_guid, created_at)
    select g.asks_for, {now} from given g where g.request_guid in (select request_guid from first)
    on conflict do nothing
)
select request_guid from first;
