-- now (postgresql). Promise: the database's time.
select {now} as now;
