-- put_tasks (sqlite). Promise: these tasks are in their queues, all of them, under ids that rise in the order given; a
-- request is carried out once, however often it is sent, and its ids are kept beside it (request_ids) for whoever sends it
-- again because no answer came. Each can be taken from its start on.
-- Differs from postgresql/put_tasks.sql: the request is noted by a statement of its own; the bytes of all tasks are one
-- value, of which each is a piece, for JSON holds no bytes; no NOTIFY (workers watch data_version).
insert into matrixsched_queue_tasks (queue, attempts, created_at, start_at, due_at, data)
select g.value ->> 0, 0, {now}, g.value ->> 1, g.value ->> 1, coalesce(substr(:data, g.value ->> 2, g.value ->> 3), x'')
  from json_each(:tasks) as g
returning id;
