-- queue_settings (postgresql). Promise: what may be changed of queues while workers run is read and written, one queue at a
-- time; a change follows from what is there when it is written.

-- name: all
select * from matrixsched.queue_settings order by queue;

-- name: make
insert into matrixsched.queue_settings (queue, updated_at) values (cast(:queue as integer), {now})
on conflict do nothing;

-- name: hold
select * from matrixsched.queue_settings where queue = cast(:queue as integer) for no key update;

-- name: write
with written as (
    update matrixsched.queue_settings
       set name = cast(:queue_name as text), paused = cast(:paused as boolean), batch_size = cast(:batch_size as integer),
           visibility = cast(:visibility as interval), processors_max = cast(:processors_max as integer),
           updated_at = {now}
     where queue = cast(:queue as integer)
    returning *
)
select w.*, pg_notify(cast(:channel as text), 'queues') as told from written w;

-- name: pause
insert into matrixsched.queue_settings as s (queue, paused, updated_at) values (cast(:queue as integer), true, {now})
on conflict (queue) do update set paused = true, updated_at = excluded.updated_at where not s.paused
returning s.queue;

-- name: resume
with resumed as (
    update matrixsched.queue_settings set paused = false, updated_at = {now}
     where queue = cast(:queue as integer) and paused
    returning queue
)
select r.queue, pg_notify(cast(:channel as text), 'queues') as told from resumed r;
