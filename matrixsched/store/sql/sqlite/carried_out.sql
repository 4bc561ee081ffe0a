-- carried_out (sqlite). Promise: which of these requests took effect, for whoever sent one again because no answer came. Asked
-- by the guid of the change where a request is kept also if it changed nothing, or others may have sent the same: then that
-- guid is among the requests, too.
-- Differs from postgresql/carried_out.sql: json_each instead of an array; part of the same transaction.

-- name: note
-- That these changes take effect.
insert into matrixsched_requests (request_guid, created_at)
select g.value, {now} from json_each(:guids) as g where true
on conflict do nothing;

-- name: ask
select request_guid from matrixsched_requests where request_guid in (select value from json_each(:guids));
