-- sweep_history (postgresql). Promise: of the next actions in key order that have a history, :limit rows of it, only the last
-- :history_max attempts stay; none if the action itself is gone. An attempt that ends after its action was pruned is
-- remembered all the same, and claims remember without counting: this is where that ends.
with looked as materialized (
    select shard_id, action_id
      from matrixsched.attempt_history
     where (shard_id, action_id) > (cast(:after_shard as integer), cast(:after_id as text))
     order by shard_id, action_id
     limit cast(:limit as integer)
),
remembered as materialized (
    select k.shard_id, k.action_id, coalesce(a.keep, 0) as keep
      from (select distinct shard_id, action_id from looked) k
      left join lateral (select cast(:history_max as integer) as keep from matrixsched.scheduled_actions a
                          where a.shard_id = k.shard_id and a.action_id = k.action_id
                         offset 0) a on true
),
gone as (
    delete from matrixsched.attempt_history
     where ctid = any (array(
               select old.ctid
                 from remembered r
                cross join lateral (select h.ctid from matrixsched.attempt_history h
                                     where h.shard_id = r.shard_id and h.action_id = r.action_id
                                     order by h.ended_at desc, h.attempt desc
                                    offset r.keep) old))
    returning 1
)
select (select count(*) from looked) as looked, (select count(*) from gone) as gone, l.shard_id, l.action_id
  from (select) as always
  left join (select * from looked order by shard_id desc, action_id desc limit 1) l on true;
