-- inspect (postgresql). Promise: what the server, its settings and our tables are like; nobody has to be a superuser to ask,
-- and nothing of our tables but the numbers of versions is read. It locks and changes nothing.

-- name: server
select current_setting('server_version_num') as version, current_setting('server_version') as version_text,
       cast(current_user as text) as role, cast(current_database() as text) as database,
       pg_is_in_recovery() as is_standby, pg_backend_pid() as pid;

-- name: clock
select clock_timestamp() as now;

-- name: settings
-- As a session of ours begins with them, and who said so.
select s.name, s.reset_val as value,
       coalesce((select case when r.setrole = 0 then 'database' else 'role' end
                   from pg_db_role_setting r
                  where r.setrole in (0, (select oid from pg_roles where rolname = current_user))
                    and r.setdatabase in (0, (select oid from pg_database where datname = current_database()))
                    and exists (select from unnest(r.setconfig) as c where c like s.name || '=%')
                  order by r.setrole desc limit 1),
                case when s.reset_val = s.boot_val then 'default' when s.source = 'client' then 'connection'
                     else 'server' end) as origin
  from pg_settings s
 where s.name in ('fsync', 'full_page_writes', 'synchronous_commit', 'server_encoding', 'default_transaction_isolation',
                  'default_transaction_read_only', 'statement_timeout', 'lock_timeout', 'transaction_timeout',
                  'idle_in_transaction_session_timeout', 'autovacuum', 'autovacuum_freeze_max_age', 'track_counts');

-- name: connections
-- Of sessions that are hidden from us not even the kind is told; those with a database are clients, or as good as that.
select (select count(*) from pg_stat_activity a
         where a.datid is not null and coalesce(a.backend_type, 'client backend') = 'client backend') as used,
       cast(current_setting('max_connections') as integer) as most,
       coalesce(cast(current_setting('superuser_reserved_connections') as integer), 0)
           + coalesce(cast(nullif(current_setting('reserved_connections', true), '') as integer), 0) as reserved,
       (select nullif(r.rolconnlimit, -1) from pg_roles r where r.rolname = current_user) as role_most,
       (select nullif(d.datconnlimit, -1) from pg_database d where d.datname = current_database()) as database_most,
       (select count(*) from pg_stat_activity a where a.usename = current_user) as role_used,
       (select count(*) from pg_stat_activity a where a.datname = current_database()) as database_used;

-- name: sessions
-- Sessions of this database that have a transaction open, the oldest first; of those that are hidden from us the age is null.
select a.pid, coalesce(a.usename, '') as role, a.application_name, a.state, clock_timestamp() - a.xact_start as age,
       age(coalesce(a.backend_xmin, a.backend_xid)) as xmin_age
  from pg_stat_activity a
 where a.datname = current_database() and a.pid <> pg_backend_pid() and coalesce(a.backend_type, 'client backend') = 'client backend'
   and (a.xact_start is not null or a.backend_xmin is not null or a.backend_xid is not null)
 order by a.xact_start nulls last
 limit 20;

-- name: hidden
select count(*) as sessions
  from pg_stat_activity a
 where a.query = '<insufficient privilege>' and a.datid is not null;

-- name: prepared
select p.gid, p.owner, clock_timestamp() - p.prepared as age, age(p.transaction) as xmin_age
  from pg_prepared_xacts p
 where p.database = current_database()
 order by p.prepared
 limit 20;

-- name: slots
select s.slot_name, s.active, age(s.xmin) as xmin_age
  from pg_replication_slots s
 where s.xmin is not null
 order by age(s.xmin) desc
 limit 20;

-- name: lock_waits
-- Who waits for a lock and has one of our tables in hand, or waits for one; rows are waited for by their transaction.
select w.pid, coalesce(a.usename, '') as role, a.application_name, w.mode,
       clock_timestamp() - coalesce(w.waitstart, clock_timestamp()) as waited,
       (select array_agg(distinct cast(t.relname as text))
          from pg_locks h
          join pg_class t on t.oid = h.relation and t.relkind in ('r', 'p')
         where h.pid = w.pid and h.database = (select oid from pg_database where datname = current_database())
           and t.relnamespace = n.oid) as tables,
       pg_blocking_pids(w.pid) as blocked_by,
       (select string_agg(concat(b.pid, ' (', b.usename, ', ', nullif(b.application_name, '') || ', ',
                                 coalesce(b.state, 'hidden'), ')'), ', ')
          from pg_stat_activity b where b.pid = any (pg_blocking_pids(w.pid))) as blockers
  from pg_locks w
  join pg_namespace n on n.nspname = cast(:namespace as text)
  left join pg_stat_activity a on a.pid = w.pid
 where not w.granted
   and exists (select from pg_locks h
                 join pg_class t on t.oid = h.relation
                where h.pid = w.pid and t.relnamespace = n.oid
                  and h.database = (select oid from pg_database where datname = current_database()))
 order by waited desc
 limit 20;

-- name: tables
select cast(c.relname as text) as name,
       not coalesce('autovacuum_enabled=false' = any (c.reloptions) or 'autovacuum_enabled=off' = any (c.reloptions)
                    or 'autovacuum_enabled=0' = any (c.reloptions), false) as is_vacuumed,
       coalesce(s.n_live_tup, 0) as live, coalesce(s.n_dead_tup, 0) as dead,
       greatest(s.last_autovacuum, s.last_vacuum) as vacuumed_at,
       age(c.relfrozenxid) as frozen_age,
       c.relrowsecurity as has_row_security, row_security_active(c.oid) as hides_rows,
       array(select wanted.privilege
               from (values ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) as wanted (privilege)
              where not has_table_privilege(c.oid, wanted.privilege)) as lacking
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  left join pg_stat_user_tables s on s.relid = c.oid
 where n.nspname = cast(:namespace as text) and c.relkind in ('r', 'p')
 order by c.relname;

-- name: namespace
select has_schema_privilege(n.oid, 'USAGE') as is_usable from pg_namespace n where n.nspname = cast(:namespace as text);

-- name: catalogue
-- What is compared with what the migrations make. Not-null constraints are told with their columns; newer servers list
-- them among the constraints, too.
with ours as (
    select c.oid, c.relname, c.relkind, c.relpersistence
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = cast(:namespace as text) and c.relkind in ('r', 'p', 'v')
)
select concat(case o.relkind when 'v' then 'view ' else 'table ' end, o.relname) as name,
       case o.relkind when 'v' then 'view' when 'p' then 'partitioned'
            else case o.relpersistence when 'p' then 'logged' else 'not logged' end end as definition
  from ours o
union all
select concat('column ', o.relname, '.', a.attname),
       concat_ws(' ', format_type(a.atttypid, a.atttypmod),
                 case when a.attcollation <> t.typcollation then concat('collate ', l.collname) end,
                 case when a.attnotnull then 'not null' end,
                 case when a.attidentity <> '' then 'identity' end,
                 'default ' || pg_get_expr(d.adbin, d.adrelid))
  from ours o
  join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
  join pg_type t on t.oid = a.atttypid
  left join pg_collation l on l.oid = a.attcollation
  left join pg_attrdef d on d.adrelid = o.oid and d.adnum = a.attnum
union all
select concat('index ', o.relname, '.', i.relname),
       concat(pg_get_indexdef(x.indexrelid), case when not x.indisvalid then ' (invalid)' end)
  from ours o
  join pg_index x on x.indrelid = o.oid
  join pg_class i on i.oid = x.indexrelid
union all
select concat('constraint ', o.relname, '.', k.conname), pg_get_constraintdef(k.oid)
  from ours o
  join pg_constraint k on k.conrelid = o.oid and k.contype in ('c', 'p', 'u', 'f', 'x')
union all
select concat('trigger ', o.relname, '.', g.tgname), pg_get_triggerdef(g.oid)
  from ours o
  join pg_trigger g on g.tgrelid = o.oid and not g.tgisinternal;

-- name: migrations
select m.number, m.checksum from matrixsched.migrations m;

-- name: form
select i.distributed from matrixsched.installation i;

-- name: version
select i.schema_version, i.oldest_library from matrixsched.installation i;
