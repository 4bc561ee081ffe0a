-- semaphores (postgresql). Promise: semaphores are read, made and changed, one at a time; whoever changes one has it
-- balanced. A balance is waited for, for it takes milliseconds.

-- name: create
insert into matrixsched.semaphores (key, active, try_release, hold_for, created_at, updated_at)
values (cast(:semaphore as text), cast(:active as integer), cast(:try_release as integer), cast(:hold_for as interval),
        {now}, {now})
on conflict do nothing
returning key; -- every statement answers: the drivers of callers are not asked whether there is an answer

-- name: libraries
-- Workers that know no events would not know where to put them.
update matrixsched.installation set oldest_library = 4 where oldest_library < 4
returning oldest_library;

-- name: find
select * from matrixsched.semaphores where key = cast(:semaphore as text);

-- name: hold
-- For whoever changes it: what follows from what is there must still do so when it is written.
select * from matrixsched.semaphores where key = cast(:semaphore as text) for no key update;

-- name: page
select * from matrixsched.semaphores
 where key > cast(:after as text)
 order by key
 limit cast(:limit as integer);

-- name: update
with written as (
    update matrixsched.semaphores
       set active = cast(:active as integer), try_release = cast(:try_release as integer),
           hold_for = cast(:hold_for as interval), updated_at = {now}
     where key = cast(:semaphore as text)
    returning *
),
changed as (
    insert into matrixsched.semaphore_changes (semaphore, change_guid)
    select key, cast(:change_guid as uuid) from written
)
select w.*, pg_notify(cast(:channel as text), 'actions') as told from written w;
