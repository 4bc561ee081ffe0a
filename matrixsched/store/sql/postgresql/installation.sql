-- installation (postgresql). Promise: the facts of this installation and the database's time. Asked by whoever does not
-- know its form yet, also before an upgrade: a column that schema 8 has not is read so that it may be missing.
select shard_count, schema_version, oldest_library,
       coalesce(cast(to_jsonb(installation) ->> 'distributed' as boolean), false) as is_distributed,
       {now} as now
  from matrixsched.installation;
