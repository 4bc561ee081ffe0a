-- cancel_template (distributed). Promise: as that of PostgreSQL: the next actions are looked for in all shards, without a lock,
-- and cancelled shard after shard, if they are still to be.

-- name: look
select s.shard_id, s.action_id, s.action_guid
  from matrixsched.scheduled_actions s
 where s.template = cast(:template as text) and s.state = 'live'
   and (s.shard_id, s.action_id) > (cast(:after_shard as integer), cast(:after_id as text))
   and not exists (select from matrixsched.processing_queue p
                    where p.shard_id = s.shard_id and p.action_id = s.action_id
                      and p.claimed_by is not null and p.scheduled_at > {now}
                   offset 0) -- asked for each, not of all rows that are claimed
 order by s.shard_id, s.action_id
 limit cast(:limit as integer);

-- name: write
with chosen as materialized (
    select s.ctid as place, g.action_id, g.action_guid, g.fresh_guid
      from (select * from unnest(cast(:action_ids as text[]), cast(:action_guids as uuid[]), cast(:fresh_guids as uuid[]))
                         as g (action_id, action_guid, fresh_guid)
             order by action_id collate "C") g
     cross join lateral (select s.ctid
                           from matrixsched.scheduled_actions s
                          where s.shard_id = cast(:shard_id as integer) and s.action_id = g.action_id
                            and s.action_guid = g.action_guid and s.state = 'live' and s.template = cast(:template as text)
                            and not exists (select from matrixsched.processing_queue p
                                             where p.shard_id = cast(:shard_id as integer) and p.action_id = g.action_id
                                               and p.claimed_by is not null and p.scheduled_at > {now}
                                            offset 0)
                            /* pause point: stop_lock */
                            for no key update skip locked) s
),
written as ( -- by place: exactly the versions that were locked
    update matrixsched.scheduled_actions s
       set action_guid = c.fresh_guid,
           version = greatest(s.version + 1, cast(extract(epoch from {now}) * 1000000 as bigint)),
           revision = s.revision + 1,
           state = 'cancelled', finished_at = {now}, updated_at = {now},
           interrupted = s.interrupted + coalesce(
               (select p.interrupted from matrixsched.processing_queue p
                 where p.shard_id = cast(:shard_id as integer) and p.action_id = s.action_id
                   and p.action_guid = s.action_guid), 0)
      from chosen c
     where {s.place} = c.place
    returning s.action_id
),
waiting as materialized ( -- only of those that were written: a live action keeps its row
    select p.ctid
      from written w
      join chosen c on c.action_id = w.action_id
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = c.action_id
                            and p.action_guid = c.action_guid and p.claimed_by is null
                            for update skip locked) p
),
gone as (
    delete from matrixsched.processing_queue where {place} = any (array(select ctid from waiting))
)
select count(*) as cancelled from written;
