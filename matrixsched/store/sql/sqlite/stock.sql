-- stock (sqlite). Promise: the next live messages of templates in key order, counted by template, recipient's zone,
-- priority and the times on a grid by which they are due and expired; with the key of the last one.
-- Differs from postgresql/stock.sql: times are integers, which are rounded by division.
with page as materialized (
    select s.template, s.shard_id, s.action_id, s.zone, s.priority, s.scheduled_at, s.expires_at
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
rounded as (
    select p.template, p.zone, p.priority,
           case when p.scheduled_at <= :since then :since
                when p.scheduled_at > :until then :until + :grid
                else (p.scheduled_at + :grid - 1) / :grid * :grid end as due_at,
           case when p.expires_at <= :since then :since
                when p.expires_at <= :until then (p.expires_at + :grid - 1) / :grid * :grid end as expires_at
      from page p
)
select r.template, r.zone, r.priority, r.due_at, r.expires_at, count(*) as messages,
       l.last_template, l.last_shard, l.last_id
  from rounded r cross join last l
 group by r.template, r.zone, r.priority, r.due_at, r.expires_at;
