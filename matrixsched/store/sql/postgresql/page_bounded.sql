-- page_bounded (postgresql). Promise: the keys of actions that fit, in a stable order after a given one, among the next :look_max that there
-- are: whatever is asked for, it reads no more of them than that. The last row, `is_last`, is the key at which the look ended.

-- name: by_id
-- By id, over all shards: each is read up to :each rows in its own order, and what all of them were read up to is complete.
with looked as materialized (
    select a.shard_id, a.action_id, a.state, a.handler, a.template, a.scheduled_at
      from matrixsched.shard_locks l
     cross join lateral (
           select b.shard_id, b.action_id, b.state, b.handler, b.template, b.scheduled_at
             from matrixsched.scheduled_actions b
            where b.shard_id = l.shard_id and b.action_id > cast(:after_id as text)
              and b.action_id >= cast(:lowest as text) and b.action_id <= cast(:highest as text)
            order by b.action_id
            limit cast(:each as integer)) a
),
edge as (
    select min(r.last_id) as action_id
      from (select max(action_id) as last_id from looked
             group by shard_id having count(*) >= cast(:each as integer)) r
)
(select k.shard_id, k.action_id, false as is_last
   from looked k, edge e
  where (e.action_id is null or k.action_id <= e.action_id)
    and (cast(:state as text) is null or k.state = cast(:state as text))
    and (cast(:handler as text) is null or k.handler = cast(:handler as text))
    and (cast(:template as text) is null or k.template = cast(:template as text))
    and (cast(:due_before as timestamptz) is null or k.scheduled_at < cast(:due_before as timestamptz))
  order by k.action_id
  limit cast(:limit as integer))
union all
select 0, action_id, true from edge where action_id is not null;

-- name: of_template
-- The same for the live actions of a template, which have an index of their own.
with looked as materialized (
    select a.shard_id, a.action_id, a.handler, a.scheduled_at
      from matrixsched.scheduled_actions a
     where a.template = cast(:template as text) and a.state = 'live'
       and (a.shard_id, a.action_id) > (cast(:after_shard as integer), cast(:after_id as text))
     order by a.shard_id, a.action_id
     limit cast(:look_max as integer)
)
(select shard_id, action_id, false as is_last
   from looked
  where action_id >= cast(:lowest as text) and action_id <= cast(:highest as text)
    and (cast(:handler as text) is null or handler = cast(:handler as text))
    and (cast(:due_before as timestamptz) is null or scheduled_at < cast(:due_before as timestamptz))
  order by shard_id, action_id
  limit cast(:limit as integer))
union all
select shard_id, action_id, true
  from (select shard_id, action_id from looked order by shard_id, action_id offset cast(:look_max as integer) - 1) e;

-- name: finished
-- What ended in a state, newest first, before a given one.
with looked as materialized (
    select a.shard_id, a.action_id, a.finished_at, a.handler, a.template, a.scheduled_at
      from matrixsched.scheduled_actions a
     where a.state = cast(:state as text) and a.finished_at is not null
       and a.finished_at <= cast(:before_at as timestamptz)
       -- Not as one comparison of rows: of that it is thought that few pass, and then all are read and sorted.
       and (a.finished_at < cast(:before_at as timestamptz)
            or (a.shard_id, a.action_id) < (cast(:before_shard as integer), cast(:before_id as text)))
     order by a.finished_at desc, a.shard_id desc, a.action_id desc
     limit cast(:look_max as integer)
)
(select shard_id, action_id, finished_at, false as is_last
   from looked
  where action_id >= cast(:lowest as text) and action_id <= cast(:highest as text)
    and (cast(:handler as text) is null or handler = cast(:handler as text))
    and (cast(:template as text) is null or template = cast(:template as text))
    and (cast(:due_before as timestamptz) is null or scheduled_at < cast(:due_before as timestamptz))
  order by finished_at desc, shard_id desc, action_id desc
  limit cast(:limit as integer))
union all
select shard_id, action_id, finished_at, true
  from (select shard_id, action_id, finished_at from looked
         order by finished_at desc, shard_id desc, action_id desc offset cast(:look_max as integer) - 1) e;
