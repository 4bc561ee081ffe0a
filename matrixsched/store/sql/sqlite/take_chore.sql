-- take_chore (sqlite). Promise: a chore is one worker's at a time, for as long as its lease says. It is taken if nobody has
-- it and it was last done longer than :every ago, or if its holder let the lease run out; if it is ours already, the lease
-- is prolonged. Says how far it has come. When there is nothing to take it writes nothing.
-- Differs from postgresql/take_chore.sql: looking and taking are two statements of one write transaction.

-- name: look
select c.position
  from matrixsched_chores c
 where c.name = :chore
   and case when c.held_by is null
            then c.done_at is null or c.done_at <= {now} - :every
                 or c.done_at > {now} -- by a clock that was set back since
            else c.held_by = :holder or c.held_until <= {now}
                 or c.held_until > {now} + :lease + :every end; -- likewise

-- name: take
update matrixsched_chores set held_by = :holder, held_until = {now} + :lease where name = :chore;
