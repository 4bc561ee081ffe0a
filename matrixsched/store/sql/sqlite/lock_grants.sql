-- lock_grants (sqlite). Promise: what these templates may still send in the present window. A template without a grant is
-- named alone; one that does not exist is not named.
-- Differs from postgresql/lock_grants.sql: no lock: there is one writer, so nothing can be busy.
with present as materialized (
    select begins_at, ends_at
      from (select begins_at, ends_at from matrixsched_quota_windows
             where begins_at <= {now} order by begins_at desc limit 1)
     where ends_at > {now}
)
select t.name as template, t.paused_at, t.paused_until, w.begins_at, w.ends_at, g.priority, g.inside, g.zones, g.granted,
       g.used
  from matrixsched_templates t
  left join present w on true
  left join matrixsched_quota_grants g on g.begins_at = w.begins_at and g.template = t.name
 where t.name in (select value from json_each(:templates))
 order by t.name;
