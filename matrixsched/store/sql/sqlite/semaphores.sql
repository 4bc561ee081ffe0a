-- semaphores (sqlite). Promise: semaphores are read, made and changed, one at a time; whoever changes one has it balanced.
-- Differs from postgresql/semaphores.sql: `update` and `change` are two statements of one transaction.

-- name: create
insert into matrixsched_semaphores (key, active, try_release, hold_for, created_at, updated_at)
values (:semaphore, :active, :try_release, :hold_for, {now}, {now})
on conflict do nothing;

-- name: libraries
-- Workers that know no events would not know where to put them.
update matrixsched_installation set oldest_library = 4 where oldest_library < 4;

-- name: find
select * from matrixsched_semaphores where key = :semaphore;

-- name: hold
select * from matrixsched_semaphores where key = :semaphore;

-- name: page
select * from matrixsched_semaphores where key > :after order by key limit :limit;

-- name: update
update matrixsched_semaphores
   set active = :active, try_release = :try_release, hold_for = :hold_for, updated_at = {now}
 where key = :semaphore
returning *;

-- name: change
-- Have it balanced.
insert into matrixsched_semaphore_changes (semaphore, change_guid) values (:semaphore, :change_guid)
on conflict do nothing;
