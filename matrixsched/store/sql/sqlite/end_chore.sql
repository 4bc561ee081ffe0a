-- end_chore (sqlite). Promise: whoever holds the chore lets it go as done; for anybody else nothing changes.
-- Differs from postgresql/end_chore.sql: only in the casts.
update matrixsched_chores
   set held_by = null, position = :position, done_at = {now}
 where name = :chore and held_by = :holder
returning name;
