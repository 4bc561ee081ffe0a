-- call_off (postgresql). Promise: a change that has not taken effect will not, however late a try of it arrives: its guid is
-- among the requests as if it had been written, and beside it the mark by which `carried_out` tells that it was not. Waits
-- for a try that is under way. Does nothing if the change took effect, or was called off before.
with closed as (
    insert into matrixsched.requests (request_guid, created_at) values (cast(:change_guid as uuid), {now})
    on conflict do nothing
    returning request_guid
)
insert into matrixsched.requests (request_guid, created_at)
select cast(:mark as uuid), {now} from closed;
