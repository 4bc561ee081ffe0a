-- chores (sqlite). Promise: who is at which chore until when, and when each was last done. It locks nothing.
-- Differs from postgresql/chores.sql: only in its names.
select c.name, c.held_by is not null as held, c.held_until, c.done_at from matrixsched_chores c order by c.name;
