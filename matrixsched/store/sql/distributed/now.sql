-- now (distributed). Promise: the time of the node that clients connect to, which is given to all other statements.
select coalesce(cast(:now as timestamptz), statement_timestamp()) as now;
