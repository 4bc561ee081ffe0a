-- keep_chore (postgresql). Promise: whoever holds the chore notes how far it has come and keeps it for another lease; for
-- anybody else nothing changes.
update matrixsched.chores
   set held_until = {now} + cast(:lease as interval), position = cast(:position as text)
 where name = cast(:chore as text) and held_by = cast(:holder as uuid)
   and {in_time}
returning name;
