-- keep_chore (sqlite). Promise: whoever holds the chore notes how far it has come and keeps it for another lease; for
-- anybody else nothing changes.
-- Differs from postgresql/keep_chore.sql: only in the casts.
update matrixsched_chores
   set held_until = {now} + :lease, position = :position
 where name = :chore and held_by = :holder
returning name;
