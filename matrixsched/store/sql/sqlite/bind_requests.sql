-- bind_requests (sqlite). Promise: of the requests of one name the first that is committed decides what that name asks for:
-- beside it a guid that was made of this is kept. Returns those that are the first; of another one `carried_out` tells by
-- that guid whether the first asked for the same.
-- Differs from postgresql/bind_requests.sql: what they ask for is noted by `carried_out.note`; nothing is waited for, as there
-- is one writer.
insert into matrixsched_requests (request_guid, created_at)
select g.value, {now} from json_each(:request_guids) as g where true
on conflict do nothing
returning request_guid;
