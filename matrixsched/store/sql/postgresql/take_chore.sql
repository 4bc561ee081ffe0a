-- take_chore (postgresql). Promise: a chore is one worker's at a time, for as long as its lease says. It is taken if nobody
-- has it and it was last done longer than :every ago, or if its holder let the lease run out; if it is ours already, the
-- lease is prolonged. Says how far it has come. Never waits; when there is nothing to take it writes nothing.
with free as materialized (
    select c.name
      from matrixsched.chores c
     where c.name = cast(:chore as text)
       and {in_time}
       and case when c.held_by is null
                then c.done_at is null or c.done_at <= {now} - cast(:every as interval)
                     or c.done_at > {now} -- by a clock that was set back since
                else c.held_by = cast(:holder as uuid) or c.held_until <= {now}
                     or c.held_until > {now} + cast(:lease as interval) + cast(:every as interval) end -- likewise
       /* pause point: chore_lock */
       for update skip locked
)
update matrixsched.chores c
   set held_by = cast(:holder as uuid), held_until = {now} + cast(:lease as interval)
  from free f
 where c.name = f.name
returning c.position;
