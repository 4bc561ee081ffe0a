-- sweep_dead (distributed). Promise: as that of PostgreSQL: the next rows are read over the shards, without a lock, and judged
-- and written shard after shard.

-- name: look
select shard_id, action_id, action_guid,
       claimed_by is not null and scheduled_at > {now} + cast(:reach as interval) as stranded
  from matrixsched.processing_queue
 where (shard_id, action_id, action_guid)
       > (cast(:after_shard as integer), cast(:after_id as text), cast(:after_guid as uuid))
 order by shard_id, action_id, action_guid
 limit cast(:limit as integer);

-- name: dead
with dead as materialized (
    select p.ctid
      from unnest(cast(:action_ids as text[]), cast(:action_guids as uuid[])) as k (action_id, action_guid)
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = k.action_id
                            and p.action_guid = k.action_guid
                            and (p.claimed_by is null or p.scheduled_at <= {now})
                            and not exists (select from matrixsched.scheduled_actions a
                                             where a.shard_id = cast(:shard_id as integer) and a.action_id = p.action_id
                                               and a.action_guid = p.action_guid and a.state = 'live')
                            /* pause point: sweep_lock */
                            for update of p skip locked) p
),
gone as ( -- by place; a row that changed since the snapshot has another one and waits for the next round
    delete from matrixsched.processing_queue where {place} = any (array(select ctid from dead)) returning 1
)
select count(*) as gone from gone;

-- name: shorten
with stranded as materialized (
    select p.ctid
      from unnest(cast(:action_ids as text[]), cast(:action_guids as uuid[])) as k (action_id, action_guid)
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = k.action_id
                            and p.action_guid = k.action_guid
                            and p.claimed_by is not null and p.scheduled_at > {now} + cast(:reach as interval)
                            for update of p skip locked) p
),
shortened as (
    update matrixsched.processing_queue set scheduled_at = {now} + cast(:reach as interval)
     where {place} = any (array(select ctid from stranded))
    returning 1
)
select count(*) as shortened from shortened;
