-- read_grants (postgresql). Promise: what these templates, or all, were granted in the present window and have used of it;
-- a template without a grant is named alone, one that does not exist is not named. As `lock_grants`, but it locks nothing.
with present as materialized (
    select begins_at, ends_at
      from (select begins_at, ends_at from matrixsched.quota_windows
             where begins_at <= {now} order by begins_at desc limit 1) w
     where ends_at > {now}
)
select t.name as template, t.paused_at, t.paused_until, w.begins_at, w.ends_at, g.priority, g.inside, g.zones, g.granted,
       g.used, false as busy
  from matrixsched.templates t
  left join present w on true
  left join lateral (select g.priority, g.inside, g.zones, g.granted, g.used
                       from matrixsched.quota_grants g
                      where g.begins_at = w.begins_at and g.template = t.name
                     offset 0) g on true -- by its key: without statistics the grants of all windows would be read
 where cast(:templates as text[]) is null or t.name = any (cast(:templates as text[]))
 order by t.name;
