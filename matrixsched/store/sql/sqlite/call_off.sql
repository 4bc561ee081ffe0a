-- call_off (sqlite). Promise: a change that has not taken effect will not, however late a try of it arrives: its guid is among
-- the requests as if it had been written, and beside it the mark by which `carried_out` tells that it was not. Does nothing
-- if the change took effect, or was called off before.
-- Differs from postgresql/call_off.sql: one insert, for there is one writer, so nothing is waited for.
insert into matrixsched_requests (request_guid, created_at)
select g.value, {now} from json_each(json_array(:change_guid, :mark)) as g
 where not exists (select 1 from matrixsched_requests r where r.request_guid = :change_guid);
