-- queue_settings (sqlite). Promise: what may be changed of queues while workers run is read and written, one queue at a time;
-- a change follows from what is there when it is written.
-- Differs from postgresql/queue_settings.sql: nothing needs a lock; no NOTIFY (workers watch data_version).

-- name: all
select * from matrixsched_queue_settings order by queue;

-- name: make
insert into matrixsched_queue_settings (queue, updated_at) values (:queue, {now})
on conflict do nothing;

-- name: hold
select * from matrixsched_queue_settings where queue = :queue;

-- name: write
update matrixsched_queue_settings
   set name = :queue_name, paused = :paused, batch_size = :batch_size, visibility = :visibility,
       processors_max = :processors_max, updated_at = {now}
 where queue = :queue
returning *;

-- name: pause
insert into matrixsched_queue_settings as s (queue, paused, updated_at) values (:queue, 1, {now})
on conflict (queue) do update set paused = 1, updated_at = excluded.updated_at where not s.paused
returning queue;

-- name: resume
update matrixsched_queue_settings set paused = 0, updated_at = {now}
 where queue = :queue and paused
returning queue;
