-- look (sqlite). Promise: a page of the actions that fit, out of a bounded number of actions in key order after a given one; so a
-- filter that fits few of many costs no more than one that fits all, and paging neither skips nor repeats what stays.
-- Differs from postgresql/look.sql: substr instead of starts_with.

-- name: end
-- The last action that is looked at, if there are more behind it.
select shard_id, action_id
  from matrixsched_scheduled_actions
 where (shard_id, action_id) > (:after_shard, :after_id)
 order by shard_id, action_id
 limit 1
offset :look_max - 1;

-- name: page
with looked as (
    select *
      from matrixsched_scheduled_actions
     where (shard_id, action_id) > (:after_shard, :after_id)
       and (shard_id, action_id) <= (:end_shard, :end_id)
     order by shard_id, action_id
     limit :look_max
),
fitting as (
    select *
      from looked
     where (:state is null or state = :state)
       and (:handler is null or handler = :handler)
       and (:template is null or template = :template)
       and (:id_prefix is null or substr(action_id, 1, length(:id_prefix)) = :id_prefix)
       and (:due_before is null or scheduled_at < :due_before)
     order by shard_id, action_id
     limit :limit
)
select a.*, coalesce(p.interrupted, 0) as interrupted_uncounted,
       exists (select 1 from matrixsched_processing_queue r
                where r.shard_id = a.shard_id and r.action_id = a.action_id
                  and r.claimed_by is not null and r.scheduled_at > {now}) as running
  from fitting a
  left join matrixsched_processing_queue p
    on p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid
 order by a.shard_id, a.action_id;
