-- find_limits (sqlite). Promise: those of the named limits that there are, by name.
-- Differs from postgresql/find_limits.sql: json_each instead of any.
select l.*
  from json_each(:names) as wanted
 cross join matrixsched_limits l on l.name = wanted.value
 order by l.name;
