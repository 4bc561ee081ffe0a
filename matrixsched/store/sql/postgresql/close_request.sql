-- close_request (postgresql). Promise: a request that was not carried out will not be, however late an earlier try of it
-- arrives. Waits for one that is under way. Returns nothing if it was carried out, or closed, before.
insert into matrixsched.requests (request_guid, created_at) values (cast(:request_guid as uuid), {now})
on conflict do nothing
returning request_guid;
