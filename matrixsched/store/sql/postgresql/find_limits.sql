-- find_limits (postgresql). Promise: those of the named limits that there are, by name. Locks nothing.
select *, {now} as now from matrixsched.limits where name = any (cast(:names as text[])) order by name;
