-- know_queue (postgresql). Promise: that a queue had tasks is noted, so that it is told of when it is empty. Never waits: two who
-- note the same at once leave two rows, which say the same as one.
insert into matrixsched.known_queues (queue)
select cast(:queue as integer)
 where not exists (select from matrixsched.known_queues k where k.queue = cast(:queue as integer));
