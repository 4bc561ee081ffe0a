-- lock_grants (postgresql). Promise: what these templates may still send in the present window, locked until the transaction
-- ends; a grant that somebody else spends now is only named, as busy. A template without a grant is named alone; one
-- that does not exist is not named. Never waits.
with present as materialized (
    select begins_at, ends_at
      from (select begins_at, ends_at from matrixsched.quota_windows
             where begins_at <= {now} order by begins_at desc limit 1) w
     where ends_at > {now}
),
locked as materialized (
    select g.*
      from present w
     cross join lateral (select g.* from matrixsched.quota_grants g
                          where g.begins_at = w.begins_at and g.template = any (cast(:templates as text[]))
                            /* pause point: lock_grants */
                          order by g.template, g.priority, g.inside
                            for no key update of g skip locked) g
)
select t.name as template, t.paused_at, t.paused_until, w.begins_at, w.ends_at, g.priority, g.inside, g.zones,
       coalesce(k.granted, g.granted) as granted, coalesce(k.used, g.used) as used,
       g.template is not null and k.template is null as busy
  from matrixsched.templates t
  left join present w on true
  left join lateral (select g.* from matrixsched.quota_grants g
                      where g.begins_at = w.begins_at and g.template = t.name
                     offset 0) g on true -- by its key: without statistics the grants of all windows would be read
  left join locked k on k.template = g.template and k.priority = g.priority and k.inside = g.inside
 where t.name = any (cast(:templates as text[]));
