-- stock (sqlite). Promise: the next live messages of templates in key order, counted by template, recipient's zone,
-- priority, handler, where :keyed says so the lane in whose name their key stands, and the times on a grid by which they
-- are due and expired, which is the coarser the further ahead they are; with the key of the last one.
-- Differs from postgresql/stock.sql: times are integers, which are rounded by division.
with page as materialized (
    select s.template, s.shard_id, s.action_id, s.zone, s.priority, s.handler, iif(:keyed, s.lane, '') as lane,
           s.scheduled_at, s.expires_at
      from matrixsched_scheduled_actions s
     where s.template is not null and s.state = 'live'
       and (s.template, s.shard_id, s.action_id) > (:after_template, :after_shard, :after_id)
     order by s.template, s.shard_id, s.action_id
     limit :limit
),
last as (
    select template as last_template, shard_id as last_shard, action_id as last_id
      from page order by template desc, shard_id desc, action_id desc limit 1
),
grids as (
    select p.*,
           case when p.scheduled_at <= :since + 3600000000 then 60000000
                when p.scheduled_at <= :since + 8 * 3600000000 then 300000000
                when p.scheduled_at <= :since + 24 * 3600000000 then 900000000 else 3600000000 end as due_grid,
           case when p.expires_at <= :since + 3600000000 then 60000000
                when p.expires_at <= :since + 8 * 3600000000 then 300000000
                when p.expires_at <= :since + 24 * 3600000000 then 900000000 else 3600000000 end as expiry_grid
      from page p
),
rounded as (
    select g.template, g.zone, g.priority, g.handler, g.lane,
           case when g.scheduled_at <= :since then :since
                when g.scheduled_at > :until then :until + 3600000000
                else (g.scheduled_at + g.due_grid - 1) / g.due_grid * g.due_grid end as due_at,
           case when g.expires_at <= :since then :since
                when g.expires_at <= :until
                    then (g.expires_at + g.expiry_grid - 1) / g.expiry_grid * g.expiry_grid end as expires_at
      from grids g
)
select r.template, r.zone, r.priority, r.handler, r.lane, r.due_at, r.expires_at, count(*) as messages,
       l.last_template, l.last_shard, l.last_id
  from rounded r cross join last l
 group by r.template, r.zone, r.priority, r.handler, r.lane, r.due_at, r.expires_at;
