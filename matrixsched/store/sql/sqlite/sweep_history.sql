-- sweep_history (sqlite). Promise: of the next actions in key order that have a history, :limit rows of it, only the last
-- :history_max attempts stay; none if the action itself is gone. An attempt that ends after its action was pruned is
-- remembered all the same, and claims remember without counting: this is where that ends.
-- Differs from postgresql/sweep_history.sql: looking and forgetting are two statements of one write transaction.

-- name: look
with looked as materialized (
    select shard_id, action_id
      from matrixsched_attempt_history
     where (shard_id, action_id) > (:after_shard, :after_id)
     order by shard_id, action_id
     limit :limit
)
select l.shard_id, l.action_id, count(*) as looked,
       (select count(*) from matrixsched_attempt_history h
         where h.shard_id = l.shard_id and h.action_id = l.action_id) as remembered,
       exists (select 1 from matrixsched_scheduled_actions a
                where a.shard_id = l.shard_id and a.action_id = l.action_id) as present
  from looked l
 group by l.shard_id, l.action_id
 order by l.shard_id, l.action_id;

-- name: forget
-- All but the newest :keep of an action.
delete from matrixsched_attempt_history
 where shard_id = :shard_id and action_id = :action_id
   and (action_guid, attempt) in (select k.action_guid, k.attempt
                                    from matrixsched_attempt_history k
                                   where k.shard_id = :shard_id and k.action_id = :action_id
                                   order by k.ended_at desc, k.attempt desc
                                   limit -1 offset :keep);
