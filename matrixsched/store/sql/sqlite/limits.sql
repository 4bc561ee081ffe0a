-- limits (sqlite). Promise: the limits that limit anything now, in the order of their names after a given one. Rows
-- without a rate that are not slowed down only keep the slots of a key, and are left out.
-- Differs from postgresql/limits.sql: in its types alone.
select * from matrixsched_limits
 where name > :after
   and (requests is not null or slow_until > {now})
   and (:include_keys or name = 'key:*' or not (name > 'key:' and name < 'key;'))
 order by name
 limit :limit;
