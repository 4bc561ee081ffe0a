-- cancel_template (sqlite). Promise: the next live actions of a template in key order that no attempt is made at are
-- finished as cancelled, each at a new guid, and their rows in processing are gone.
-- Differs from postgresql/cancel_template.sql: chosen first, then written by exact key, in one transaction.

-- name: choose
select s.shard_id, s.action_id, s.action_guid
  from matrixsched_scheduled_actions s
 where s.template = :template and s.state = 'live'
   and (s.shard_id, s.action_id) > (:after_shard, :after_id)
   and not exists (select 1 from matrixsched_processing_queue p
                    where p.shard_id = s.shard_id and p.action_id = s.action_id
                      and p.claimed_by is not null and p.scheduled_at > {now})
 order by s.shard_id, s.action_id
 limit :limit;

-- name: write
update matrixsched_scheduled_actions as s
   set action_guid = :new_guid, version = max(s.version + 1, {now}), revision = s.revision + 1,
       state = 'cancelled', finished_at = {now}, updated_at = {now},
       interrupted = s.interrupted + coalesce(
           (select p.interrupted from matrixsched_processing_queue p
             where p.shard_id = s.shard_id and p.action_id = s.action_id and p.action_guid = s.action_guid), 0)
 where s.shard_id = :shard_id and s.action_id = :action_id and s.action_guid = :action_guid;

-- name: drop
delete from matrixsched_processing_queue
 where shard_id = :shard_id and action_id = :action_id and action_guid = :action_guid and claimed_by is null;
