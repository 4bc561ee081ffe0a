-- now (distributed). Promise: the time of the node that clients connect to, which is given to all other statements; and whether it
-- takes writes, for whoever would else only read there.
select coalesce(cast(:now as timestamptz), statement_timestamp()) as now, {takes_writes} as takes_writes;
