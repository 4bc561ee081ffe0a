-- carried_out (sqlite). Promise: whether a request took effect, for whoever sends it again because no answer came: then its
-- change guid is among the requests, too.
-- Differs from postgresql/carried_out.sql: no casts; part of the same transaction.

-- name: note
-- That it takes effect.
insert into matrixsched_requests (request_guid, created_at) values (:change_guid, {now})
on conflict do nothing;

-- name: ask
select exists (select 1 from matrixsched_requests where request_guid = :change_guid) as carried_out;
