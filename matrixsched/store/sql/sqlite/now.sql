-- now (sqlite). Promise: the database's time.
-- Differs from postgresql/now.sql: the time is the host's.
select {now} as now;
