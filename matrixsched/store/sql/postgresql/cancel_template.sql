-- cancel_template (postgresql). Promise: the next live actions of a template in key order that no attempt is made at are
-- finished as cancelled, each at a new guid, and their rows in processing are gone. What others hold is passed over.
with chosen as materialized (
    select s.shard_id, s.action_id, s.action_guid
      from matrixsched.scheduled_actions s
     where s.template = cast(:template as text) and s.state = 'live'
       and (s.shard_id, s.action_id) > (cast(:after_shard as integer), cast(:after_id as text))
       and not exists (select from matrixsched.processing_queue p
                        where p.shard_id = s.shard_id and p.action_id = s.action_id
                          and p.claimed_by is not null and p.scheduled_at > {now})
     order by s.shard_id, s.action_id
     limit cardinality(cast(:guids as uuid[]))
       for no key update skip locked
),
numbered as (
    select *, row_number() over (order by shard_id, action_id) as number from chosen
),
written as (
    update matrixsched.scheduled_actions s
       set action_guid = (cast(:guids as uuid[]))[n.number],
           version = greatest(s.version + 1, cast(extract(epoch from {now}) * 1000000 as bigint)),
           revision = s.revision + 1,
           state = 'cancelled', finished_at = {now}, updated_at = {now},
           interrupted = s.interrupted + coalesce(
               (select p.interrupted from matrixsched.processing_queue p
                 where p.shard_id = s.shard_id and p.action_id = s.action_id and p.action_guid = s.action_guid), 0)
      from numbered n
     where s.shard_id = n.shard_id and s.action_id = n.action_id
    returning s.shard_id, s.action_id
),
waiting as materialized (
    select p.shard_id, p.action_id, p.action_guid
      from chosen c
      join matrixsched.processing_queue p
        on p.shard_id = c.shard_id and p.action_id = c.action_id and p.action_guid = c.action_guid
     where p.claimed_by is null
       for update of p skip locked
),
gone as (
    delete from matrixsched.processing_queue p
     using waiting w
     where p.shard_id = w.shard_id and p.action_id = w.action_id and p.action_guid = w.action_guid
)
select (select count(*) from written) as cancelled, last.shard_id, last.action_id
  from (select 1) as always
  left join lateral (select shard_id, action_id from chosen order by shard_id desc, action_id desc limit 1) as last on true;
