-- sweep_dead (postgresql). Promise: of the next :limit processing rows in key order, deletes those whose action has another
-- guid or is finished, except attempts under way. Row and action are judged in one snapshot, and a guid never comes back,
-- so dead is dead. Without this, rows of far-future actions that were cancelled would stay for years.
-- A lease that ends later than any lease can (:reach from now) was written before the database's clock was set back: it is
-- cut to :reach, which is no shorter than its holder asked for, so that nobody waits as long as the clock went back.
with looked as materialized (
    select shard_id, action_id, action_guid,
           claimed_by is not null and scheduled_at > {now} + cast(:reach as interval) as stranded
      from matrixsched.processing_queue
     where (shard_id, action_id, action_guid)
           > (cast(:after_shard as integer), cast(:after_id as text), cast(:after_guid as uuid))
     order by shard_id, action_id, action_guid
     limit cast(:limit as integer)
),
dead as materialized (
    select p.ctid
      from looked k
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = k.shard_id and p.action_id = k.action_id and p.action_guid = k.action_guid
                            and (p.claimed_by is null or p.scheduled_at <= {now})
                            and not exists (select from matrixsched.scheduled_actions a
                                             where a.shard_id = p.shard_id and a.action_id = p.action_id
                                               and a.action_guid = p.action_guid and a.state = 'live')
                            /* pause point: sweep_lock */
                            for update of p skip locked) p
),
gone as ( -- by place; a row that changed since the snapshot has another one and waits for the next round
    delete from matrixsched.processing_queue where ctid = any (array(select ctid from dead)) returning 1
),
stranded as materialized ( -- hardly ever any
    select p.ctid
      from (select * from looked where stranded) k
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = k.shard_id and p.action_id = k.action_id and p.action_guid = k.action_guid
                            and p.claimed_by is not null and p.scheduled_at > {now} + cast(:reach as interval)
                            for update of p skip locked) p
),
shortened as (
    update matrixsched.processing_queue set scheduled_at = {now} + cast(:reach as interval)
     where ctid = any (array(select ctid from stranded))
    returning 1
)
select (select count(*) from looked) as looked, (select count(*) from gone) as gone,
       (select count(*) from shortened) as shortened, l.shard_id, l.action_id, l.action_guid
  from (select) as always
  left join (select * from looked order by shard_id desc, action_id desc, action_guid desc limit 1) l on true;
