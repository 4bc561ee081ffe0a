-- leave_chore (postgresql). Promise: whoever holds the chore lets it go undone, as far as it has come, for anybody to take at once;
-- for anybody else nothing changes.
update matrixsched.chores
   set held_by = null
 where name = cast(:chore as text) and held_by = cast(:holder as uuid)
returning name;
