-- request_ids (postgresql). Promise: the ids of the tasks that a request has put or settled, which was sent before; no row if
-- it never came. It locks nothing.

-- name: find
select task_ids as ids from matrixsched.requests where request_guid = cast(:request_guid as uuid);
