-- plan_window (sqlite). Promise: a window of the quota is planned once for the whole fleet.
-- Differs from postgresql/plan_window.sql: there is only one writer, so nobody's turn to wait for; each kind is
-- counted, and each row written, by itself.

-- name: state
select {now} as now, s.settings,
       (select w.begins_at from matrixsched_quota_windows w
         where w.begins_at <= {now} order by w.begins_at desc limit 1) as previous_begins_at,
       (select w.ends_at from matrixsched_quota_windows w
         where w.begins_at <= {now} order by w.begins_at desc limit 1) as previous_ends_at,
       (select w.begins_at from matrixsched_quota_windows w
         where w.begins_at > {now} order by w.begins_at limit 1) as next_begins_at,
       (select c.done_at from matrixsched_chores c where c.name = 'plan') as asked_at
  from matrixsched_quota_settings s;

-- name: unsettled
-- Whether messages of templates are due that are not before their gates yet; among the first rows of each shard.
select 1 as unsettled
  from matrixsched_shard_locks l
 where exists (select 1 from (select i.lane, i.scheduled_at from matrixsched_incoming_queue i
                               where i.shard_id = l.shard_id
                               order by i.created_at limit :rows_max) first
                where first.lane >= 'quota|' and first.lane < 'quota}' and first.scheduled_at <= {now})
    or exists (select 1 from (select p.action_id, p.action_guid from matrixsched_processing_queue p
                               where p.shard_id = l.shard_id and p.lane = 'coming' and p.scheduled_at <= {now}
                               order by p.scheduled_at limit :rows_max / 10) first
                 join matrixsched_scheduled_actions a
                   on a.shard_id = l.shard_id and a.action_id = first.action_id and a.action_guid = first.action_guid
                where a.state = 'live' and a.template is not null)
 limit 1;

-- name: put_off
update matrixsched_chores set done_at = {now} where name = 'plan';

-- name: served
select distinct g.template, g.priority, g.last_served_at
  from matrixsched_quota_grants g
 where g.begins_at = :begins_at;

-- name: due
with recursive lanes (lane) as ( -- one probe of the index for each lane
    select min(p.lane) from matrixsched_processing_queue p
     where p.lane >= 'quota|' and p.lane >= 'limit|' and p.lane < 'quota}'
    union all
    select (select min(p.lane) from matrixsched_processing_queue p
             where p.lane > c.lane and p.lane >= 'limit|' and p.lane < 'quota}')
      from lanes c
     where c.lane is not null
)
select c.lane
  from lanes c
 where c.lane is not null
   and exists (select 1 from matrixsched_processing_queue p
                where p.lane = c.lane and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now});

-- name: count
select count(*) as waiting
  from (select 1
          from json_each(:lanes) as l
         cross join matrixsched_processing_queue p
                 on p.lane = l.value and p.lane >= 'limit|' and p.lane < 'quota}'
                and p.scheduled_at <= {now} and (p.expires_at is null or p.expires_at > {now})
         limit :most);

-- name: window
insert into matrixsched_quota_windows (begins_at, ends_at, planned_at, planned_by, max_to_send, templates)
values (:begins_at, :ends_at, {now}, :planned_by, :max_to_send, :count);

-- name: grant
insert into matrixsched_quota_grants (begins_at, template, priority, inside, zones, waiting, granted, last_served_at)
values (:begins_at, :template, :priority, :inside, :zones, :waiting, :granted, :last_served_at);

-- name: serve
update matrixsched_templates set last_served_at = :last_served_at where name = :template;

-- name: lane
insert into matrixsched_held_lanes (lane, priority, handler, ready_at)
values (:lane, :priority, :handler, :ready_at)
on conflict (lane) do update set ready_at = excluded.ready_at;

-- name: forget_grants
delete from matrixsched_quota_grants
 where (begins_at, template, priority, inside) in
       (select g.begins_at, g.template, g.priority, g.inside from matrixsched_quota_grants g
         where g.begins_at < {now} - :keep order by g.begins_at limit :forget_max);

-- name: forget_windows
delete from matrixsched_quota_windows
 where begins_at in (select w.begins_at from matrixsched_quota_windows w
                      where w.begins_at < {now} - :keep order by w.begins_at limit :forget_max);
