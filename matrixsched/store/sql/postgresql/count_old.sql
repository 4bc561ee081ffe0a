-- count_old (postgresql). Promise: how many actions `prune_actions` would delete; counting stops at :count_max, so that
-- millions cost nothing.
select count(*) as old
  from (select true from matrixsched.scheduled_actions
         where (state, finished_at) > (cast(:state as text), timestamptz '-infinity') -- as in prune_actions
           and (state, finished_at)
               < (cast(:state as text), ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC')
           and finished_at is not null
         order by state, finished_at
         limit cast(:count_max as integer)) o;
