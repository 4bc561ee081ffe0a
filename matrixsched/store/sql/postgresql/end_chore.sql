-- end_chore (postgresql). Promise: whoever holds the chore lets it go as done; for anybody else nothing changes.
update matrixsched.chores
   set held_by = null, position = cast(:position as text), done_at = {now}
 where name = cast(:chore as text) and held_by = cast(:holder as uuid)
returning name;
