-- installation (sqlite). Promise: the facts of this installation and the database's time.
-- Differs from postgresql/installation.sql: the time is the host's, and there is one form only.
select shard_count, schema_version, oldest_library, {now} as now from matrixsched_installation;
