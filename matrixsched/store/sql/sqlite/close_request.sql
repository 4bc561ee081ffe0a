-- close_request (sqlite). Promise: a request that was not carried out will not be, however late an earlier try of it arrives.
-- Returns nothing if it was carried out, or closed, before.
-- Differs from postgresql/close_request.sql: no casts; there is one writer, so nothing is waited for.
insert into matrixsched_requests (request_guid, created_at) values (:request_guid, {now})
on conflict do nothing
returning request_guid;
