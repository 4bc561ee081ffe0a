-- stock (postgresql). Promise: the next live messages of templates in key order, counted by template, recipient's zone,
-- priority, handler, where :keyed says so the lane in whose name their key stands, and the times on a grid by which they
-- are due and expired, which is the coarser the further ahead they are; with the key of the last one. Locks nothing.
with page as materialized (
    select s.template, s.shard_id, s.action_id, s.zone, s.priority, s.handler,
           case when cast(:keyed as boolean) then s.lane else '' end as lane, s.scheduled_at, s.expires_at
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
           cast(:since as timestamptz) + interval '1 hour' as minutes, cast(:since as timestamptz) + interval '8 hours' as fives,
           cast(:since as timestamptz) + interval '24 hours' as quarters
),
grids as (
    select p.*, t.*,
           case when p.scheduled_at <= t.minutes then interval '1 minute' when p.scheduled_at <= t.fives then interval '5 minutes'
                when p.scheduled_at <= t.quarters then interval '15 minutes' else interval '1 hour' end as due_grid,
           case when p.expires_at <= t.minutes then interval '1 minute' when p.expires_at <= t.fives then interval '5 minutes'
                when p.expires_at <= t.quarters then interval '15 minutes' else interval '1 hour' end as expiry_grid
      from page p cross join times t
),
rounded as (
    select g.template, g.zone, g.priority, g.handler, g.lane,
           case when g.scheduled_at <= g.since then g.since
                when g.scheduled_at > g.until then g.until + interval '1 hour'
                else date_bin(g.due_grid, g.scheduled_at + g.due_grid - interval '1 microsecond', g.zero) end as due_at,
           case when g.expires_at <= g.since then g.since
                when g.expires_at <= g.until
                    then date_bin(g.expiry_grid, g.expires_at + g.expiry_grid - interval '1 microsecond', g.zero)
                end as expires_at
      from grids g
)
select r.template, r.zone, r.priority, r.handler, r.lane, r.due_at, r.expires_at, count(*) as messages,
       l.last_template, l.last_shard, l.last_id
  from rounded r cross join last l
 group by r.template, r.zone, r.priority, r.handler, r.lane, r.due_at, r.expires_at, l.last_template, l.last_shard, l.last_id;
