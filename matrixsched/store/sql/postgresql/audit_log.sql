-- audit_log (postgresql). Promise: what is to be changed is written down before it is changed, once however often it is sent; how it
-- ended is added once and never changed after that.

-- name: begin
insert into matrixsched.audit_log (entry_guid, asked_at, who, via, verb, subject, before, outcome, after)
values (cast(:entry_guid as uuid), {now}, cast(:who as text), cast(:via as text), cast(:verb as text),
        cast(:subject as text), cast(:before as text), 'begun', '{}')
on conflict (entry_guid) do nothing;

-- name: end
update matrixsched.audit_log
   set outcome = cast(:outcome as text), after = cast(:after as text), ended_at = {now}
 where entry_guid = cast(:entry_guid as uuid) and outcome = 'begun'
returning entry_guid;

-- name: page
-- Newest first, from below the last one of the page before.
select entry_guid, asked_at, who, via, verb, subject, before, outcome, after, ended_at
  from matrixsched.audit_log
 where (asked_at, entry_guid) < (coalesce(cast(:before_at as timestamptz), 'infinity'), coalesce(cast(:before_guid as uuid), 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
 order by asked_at desc, entry_guid desc
 limit cast(:limit as integer);

-- name: prune
with old as materialized (
    select ctid from matrixsched.audit_log
     where asked_at < ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC' -- days of 24 hours
     order by asked_at
     limit cast(:limit as integer)
       for update skip locked
),
gone as (
    delete from matrixsched.audit_log where ctid = any (array(select ctid from old)) returning 1
)
select count(*) as gone from gone;
