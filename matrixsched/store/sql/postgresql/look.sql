-- look (postgresql). Promise: a page of the actions that fit, out of a bounded number of actions in key order after a given one; so
-- a filter that fits few of many costs no more than one that fits all, and paging neither skips nor repeats what stays.

-- name: end
-- The last action that is looked at, if there are more behind it.
select shard_id, action_id
  from matrixsched.scheduled_actions
 where (shard_id, action_id) > (cast(:after_shard as integer), cast(:after_id as text))
 order by shard_id, action_id
offset cast(:look_max as integer) - 1
 limit 1;

-- name: page
-- Those looked at are read in the order of their key whatever the planner thinks of the filters, and no further than the page needs.
with looked as (
    select *
      from matrixsched.scheduled_actions
     where (shard_id, action_id) > (cast(:after_shard as integer), cast(:after_id as text))
       and (shard_id, action_id) <= (cast(:end_shard as integer), cast(:end_id as text))
     order by shard_id, action_id
     limit cast(:look_max as integer)
),
fitting as (
    select *
      from looked
     where (cast(:state as text) is null or state = cast(:state as text))
       and (cast(:handler as text) is null or handler = cast(:handler as text))
       and (cast(:template as text) is null or template = cast(:template as text))
       and (cast(:id_prefix as text) is null or starts_with(action_id, cast(:id_prefix as text)))
       and (cast(:due_before as timestamptz) is null or scheduled_at < cast(:due_before as timestamptz))
     order by shard_id, action_id
     limit cast(:limit as integer)
)
select a.*, coalesce(p.interrupted, 0) as interrupted_uncounted,
       exists (select from matrixsched.processing_queue r
                where r.shard_id = a.shard_id and r.action_id = a.action_id
                  and r.claimed_by is not null and r.scheduled_at > {now}) as running
  from fitting a
  left join matrixsched.processing_queue p
    on p.shard_id = a.shard_id and p.action_id = a.action_id and p.action_guid = a.action_guid
 order by a.shard_id, a.action_id;
