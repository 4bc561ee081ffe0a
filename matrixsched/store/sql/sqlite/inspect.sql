-- inspect (sqlite). Promise: what the file and our tables in it are like. It locks and changes nothing.
-- Differs from postgresql/inspect.sql: a file has no sessions, settings and privileges that could be asked for.

-- name: catalogue
-- What is compared with what the migrations make; tables with their whole text, as no other place tells their checks.
select m.type || ' ' || iif(m.name = m.tbl_name, '', m.tbl_name || '.') || m.name as name, m.sql as definition
  from sqlite_schema m
 where m.sql is not null and m.type in ('table', 'index', 'view', 'trigger')
   and substr(m.tbl_name, 1, length(:prefix)) = :prefix;

-- name: columns
select 'column ' || m.name || '.' || c.name as name,
       lower(c.type) || iif(c."notnull", ' not null', '') || iif(c.pk, ' key ' || c.pk, '')
           || coalesce(' default ' || c.dflt_value, '') as definition
  from sqlite_schema m
  join pragma_table_info(m.name) as c
 where m.type = 'table' and substr(m.tbl_name, 1, length(:prefix)) = :prefix;

-- name: migrations
select m.number, m.checksum from matrixsched_migrations m;

-- name: version
select i.schema_version, i.oldest_library from matrixsched_installation i;
