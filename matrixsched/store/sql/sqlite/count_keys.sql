-- count_keys (sqlite). Promise: how many keys have a limit of their own, or are slowed down; counts up to :count_max.
-- Differs from postgresql/count_keys.sql: in its types alone.
select count(*) as keys
  from (select 1 from matrixsched_limits
         where name > 'key:' and name < 'key;' and name <> 'key:*' and (requests is not null or slow_until > {now})
         limit :count_max);
