-- audit_log (sqlite). Promise: what is to be changed is written down before it is changed, once however often it is sent; how it
-- ended is added once and never changed after that.
-- Differs from postgresql/audit_log.sql: what is old is deleted by its key, in one statement.

-- name: begin
insert into matrixsched_audit_log (entry_guid, asked_at, who, via, verb, subject, before, outcome, after)
values (:entry_guid, {now}, :who, :via, :verb, :subject, :before, 'begun', '{}')
on conflict (entry_guid) do nothing;

-- name: end
update matrixsched_audit_log
   set outcome = :outcome, after = :after, ended_at = {now}
 where entry_guid = :entry_guid and outcome = 'begun'
returning entry_guid;

-- name: page
-- Newest first, from below the last one of the page before.
select entry_guid, asked_at, who, via, verb, subject, before, outcome, after, ended_at
  from matrixsched_audit_log
 where (asked_at, entry_guid) < (coalesce(:before_at, 9223372036854775807), coalesce(:before_guid, 'g'))
 order by asked_at desc, entry_guid desc
 limit :limit;

-- name: prune
delete from matrixsched_audit_log
 where entry_guid in (select entry_guid from matrixsched_audit_log
                       where asked_at < {now} - :keep
                       order by asked_at
                       limit :limit)
returning entry_guid;
