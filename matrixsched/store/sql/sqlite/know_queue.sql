-- know_queue (sqlite). Promise: that a queue had tasks is noted, so that it is told of when it is empty.
-- Differs from postgresql/know_queue.sql: nobody else writes, so a queue is noted once.
insert into matrixsched_known_queues (queue) values (:queue)
on conflict do nothing;
