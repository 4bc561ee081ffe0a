-- lock_limits (sqlite). Promise: of these limits those that exist. A key without a limit of its own gets a bucket of its own,
-- for which key:* speaks.
-- Differs from postgresql/lock_limits.sql: two statements, and no lock: there is one writer, so nothing can be busy.

-- name: make
insert into matrixsched_limits (name, updated_at)
select n.value, {now}
  from json_each(:names) as n
 where n.value >= 'key:' and n.value < 'key;'
   and exists (select 1 from matrixsched_limits d where d.name = 'key:*')
on conflict do nothing;

-- name: read
select l.* from matrixsched_limits l where l.name in (select value from json_each(:names));
