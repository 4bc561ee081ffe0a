-- pace (postgresql). Promise: how many actions ended after :since, by their state; of each state :count_max are counted, by
-- index, so that it costs what ended since and not what is stored. It locks nothing.
select {now} as now, s.state,
       (select count(*)
          from (select from matrixsched.scheduled_actions a
                 where (a.state, a.finished_at) > (s.state, cast(:since as timestamptz)) -- as in prune_actions
                   and (a.state, a.finished_at) <= (s.state, timestamptz 'infinity')
                   and a.finished_at is not null
                 order by a.state, a.finished_at
                 limit cast(:count_max as integer)) e) as ended
  from (values ('done'), ('failed'), ('cancelled'), ('expired'), ('quarantined')) as s (state);
