-- pace (sqlite). Promise: how many actions ended after :since, by their state; of each state :count_max are counted, by
-- index, so that it costs what ended since and not what is stored. It locks nothing.
-- Differs from postgresql/pace.sql: only in the comparisons.
select {now} as now, s.column1 as state,
       (select count(*)
          from (select 1 from matrixsched_scheduled_actions a
                 where a.state = s.column1 and a.finished_at > :since
                 order by a.finished_at
                 limit :count_max)) as ended
  from (values ('done'), ('failed'), ('cancelled'), ('expired'), ('quarantined')) as s;
