-- request_ids (sqlite). Promise: the ids of the tasks that a request has put or settled, which was sent before; no row if it
-- never came.
-- Differs from postgresql/request_ids.sql: the ids are JSON; they are noted by a statement of its own.

-- name: find
select task_ids as ids from matrixsched_requests where request_guid = :request_guid;

-- name: note
insert into matrixsched_requests (request_guid, created_at, task_ids) values (:request_guid, {now}, :ids);
