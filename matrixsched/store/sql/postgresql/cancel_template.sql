-- cancel_template (postgresql). Promise: the next live actions of a template in key order that no attempt is made at are
-- finished as cancelled, each at a new guid, and their rows in processing are gone. What others hold is passed over.
with chosen as materialized (
    select s.ctid, s.shard_id, s.action_id, s.action_guid
      from matrixsched.scheduled_actions s
     where s.template = cast(:template as text) and s.state = 'live'
       and (s.shard_id, s.action_id) > (cast(:after_shard as integer), cast(:after_id as text))
       and not exists (select from matrixsched.processing_queue p
                        where p.shard_id = s.shard_id and p.action_id = s.action_id
                          and p.claimed_by is not null and p.scheduled_at > {now}
                       offset 0) -- asked for each, not of all rows that are claimed
       /* pause point: stop_lock */
     order by s.shard_id, s.action_id
     limit cardinality(cast(:guids as uuid[]))
       for no key update skip locked
),
written as ( -- by place: exactly the versions that were locked; the guids are dealt out one to each
    update matrixsched.scheduled_actions s
       set action_guid = (cast(:guids as uuid[]))[array_position((select array_agg(c.ctid) from chosen c), s.ctid)],
           version = greatest(s.version + 1, cast(extract(epoch from {now}) * 1000000 as bigint)),
           revision = s.revision + 1,
           state = 'cancelled', finished_at = {now}, updated_at = {now},
           interrupted = s.interrupted + coalesce(
               (select p.interrupted from matrixsched.processing_queue p
                 where p.shard_id = s.shard_id and p.action_id = s.action_id and p.action_guid = s.action_guid), 0)
     where s.ctid = any (array(select ctid from chosen))
    returning s.shard_id, s.action_id
),
waiting as materialized ( -- only of those that were written: a live action keeps its row
    select p.ctid
      from written w
      join chosen c on c.shard_id = w.shard_id and c.action_id = w.action_id
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = c.shard_id and p.action_id = c.action_id and p.action_guid = c.action_guid
                            and p.claimed_by is null
                            for update skip locked) p
),
gone as (
    delete from matrixsched.processing_queue where ctid = any (array(select ctid from waiting))
)
select (select count(*) from chosen) as looked, (select count(*) from written) as cancelled, l.shard_id, l.action_id
  from (select) as always
  left join (select shard_id, action_id from chosen order by shard_id desc, action_id desc limit 1) l on true;
