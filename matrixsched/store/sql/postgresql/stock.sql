-- stock (postgresql). Promise: the next live messages of templates in key order, counted by template, recipient's zone,
-- priority and the times on a grid by which they are due and expired; with the key of the last one. Locks nothing.
with page as materialized (
    select s.template, s.shard_id, s.action_id, s.zone, s.priority, s.scheduled_at, s.expires_at
      from matrixsched.scheduled_actions s
     where s.template is not null and s.state = 'live'
       and (s.template, s.shard_id, s.action_id)
           > (cast(:after_template as text), cast(:after_shard as integer), cast(:after_id as text))
     order by s.template, s.shard_id, s.action_id
     limit cast(:limit as integer)
),
last as (
    select template as last_template, shard_id as last_shard, action_id as last_id
      from page order by template desc, shard_id desc, action_id desc limit 1
),
times as (
    select timestamptz 'epoch' as zero, cast(:since as timestamptz) as since, cast(:until as timestamptz) as until,
           cast(:grid as interval) as grid, cast(:grid as interval) - interval '1 microsecond' as nearly
),
rounded as (
    select p.template, p.zone, p.priority,
           case when p.scheduled_at <= t.since then t.since
                when p.scheduled_at > t.until then t.until + t.grid
                else date_bin(t.grid, p.scheduled_at + t.nearly, t.zero) end as due_at,
           case when p.expires_at <= t.since then t.since
                when p.expires_at <= t.until then date_bin(t.grid, p.expires_at + t.nearly, t.zero) end as expires_at
      from page p cross join times t
)
select r.template, r.zone, r.priority, r.due_at, r.expires_at, count(*) as messages,
       l.last_template, l.last_shard, l.last_id
  from rounded r cross join last l
 group by r.template, r.zone, r.priority, r.due_at, r.expires_at, l.last_template, l.last_shard, l.last_id;
