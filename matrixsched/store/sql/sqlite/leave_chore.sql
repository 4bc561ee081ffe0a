-- leave_chore (sqlite). Promise: whoever holds the chore lets it go undone, as far as it has come, for anybody to take at once;
-- for anybody else nothing changes.
-- Differs from postgresql/leave_chore.sql: only in the casts.
update matrixsched_chores
   set held_by = null
 where name = :chore and held_by = :holder
returning name;
