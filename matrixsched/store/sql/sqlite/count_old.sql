-- count_old (sqlite). Promise: how many actions `prune_actions` would delete; counting stops at :count_max, so that
-- millions cost nothing.
-- Differs from postgresql/count_old.sql: only in the casts.
select count(*) as old
  from (select 1 from matrixsched_scheduled_actions
         where state = :state and finished_at < {now} - :keep
         order by finished_at
         limit :count_max);
