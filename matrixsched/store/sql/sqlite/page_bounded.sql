-- page_bounded (sqlite). Promise: the keys of actions that fit, in a stable order after a given one, among the next :look_max that there
-- are: whatever is asked for, it reads no more of them than that. The last row, `is_last`, is the key at which the look ended.
-- Differs from postgresql/page_bounded.sql: the shards are read one by one, for there is no lateral.

-- name: by_id
-- Of one shard by id, up to :each rows.
with looked as materialized (
    select a.shard_id, a.action_id, a.state, a.handler, a.template, a.scheduled_at
      from matrixsched_scheduled_actions a
     where a.shard_id = :shard_id and a.action_id > :after_id
       and a.action_id >= :lowest and a.action_id <= :highest
     order by a.action_id
     limit :each
)
select * from (
    select shard_id, action_id, 0 as is_last
      from looked
     where (:state is null or state = :state)
       and (:handler is null or handler = :handler)
       and (:template is null or template = :template)
       and (:due_before is null or scheduled_at < :due_before)
     order by action_id
     limit :limit)
union all
select * from (select shard_id, action_id, 1 from looked order by action_id limit 1 offset :each - 1);

-- name: of_template
-- The same for the live actions of a template, which have an index of their own.
with looked as materialized (
    select a.shard_id, a.action_id, a.handler, a.scheduled_at
      from matrixsched_scheduled_actions a
     where a.template = :template and a.state = 'live'
       and (a.shard_id, a.action_id) > (:after_shard, :after_id)
     order by a.shard_id, a.action_id
     limit :look_max
)
select * from (
    select shard_id, action_id, 0 as is_last
      from looked
     where action_id >= :lowest and action_id <= :highest
       and (:handler is null or handler = :handler)
       and (:due_before is null or scheduled_at < :due_before)
     order by shard_id, action_id
     limit :limit)
union all
select * from (select shard_id, action_id, 1 from looked order by shard_id, action_id limit 1 offset :look_max - 1);

-- name: finished
-- What ended in a state, newest first, before a given one.
with looked as materialized (
    select a.shard_id, a.action_id, a.finished_at, a.handler, a.template, a.scheduled_at
      from matrixsched_scheduled_actions a
     where a.state = :state and a.finished_at is not null and a.finished_at <= :before_at
       and (a.finished_at, a.shard_id, a.action_id) < (:before_at, :before_shard, :before_id)
     order by a.finished_at desc, a.shard_id desc, a.action_id desc
     limit :look_max
)
select * from (
    select shard_id, action_id, finished_at, 0 as is_last
      from looked
     where action_id >= :lowest and action_id <= :highest
       and (:handler is null or handler = :handler)
       and (:template is null or template = :template)
       and (:due_before is null or scheduled_at < :due_before)
     order by finished_at desc, shard_id desc, action_id desc
     limit :limit)
union all
select * from (select shard_id, action_id, finished_at, 1 from looked
                order by finished_at desc, shard_id desc, action_id desc limit 1 offset :look_max - 1);
