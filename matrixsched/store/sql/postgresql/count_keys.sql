-- count_keys (postgresql). Promise: how many keys have a limit of their own, or are slowed down; counts up to :count_max.
select count(*) as keys
  from (select from matrixsched.limits
         where name > 'key:' and name < 'key;' and name <> 'key:*' and (requests is not null or slow_until > {now})
         limit cast(:count_max as integer)) counted;
