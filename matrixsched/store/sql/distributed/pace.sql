-- pace (distributed). Promise: as that of PostgreSQL, for one state; asked of each. A count for each row of a list of VALUES has no
-- place where what is counted lies on several nodes. Each node reads :count_max rows of its own at most.
select {now} as now, count(*) as ended
  from (select true from matrixsched.scheduled_actions a
         where (a.state, a.finished_at) > (cast(:state as text), cast(:since as timestamptz)) -- as in prune_actions
           and (a.state, a.finished_at) <= (cast(:state as text), timestamptz 'infinity')
           and a.finished_at is not null
         order by a.state, a.finished_at
         limit cast(:count_max as integer)) e;
