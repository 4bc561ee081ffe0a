-- installation (postgresql). Promise: the facts of this installation and the database's time.
select shard_count, schema_version, oldest_library, {now} as now from matrixsched.installation;
