-- carried_out (distributed). Promise: as that of PostgreSQL. Requests of actions are asked for in all shards: it is asked only
-- where an answer was lost, or nothing was written, and locks nothing.

-- name: of_actions
select request_guid from matrixsched.action_requests where request_guid = any (cast(:guids as uuid[]));

-- name: of_others
select request_guid from matrixsched.requests where request_guid = any (cast(:guids as uuid[]));
