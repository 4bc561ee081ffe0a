-- prune_requests (sqlite). Promise: forgets requests so old that no twin of theirs can still arrive.
-- Differs from postgresql/prune_requests.sql: choosing and deleting are two statements of one write transaction.

-- name: choose
select request_guid
  from matrixsched_requests
 where created_at < {now} - :keep
 order by created_at
 limit :limit;

-- name: delete
delete from matrixsched_requests where request_guid = :request_guid;
