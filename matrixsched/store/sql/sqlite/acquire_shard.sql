-- acquire_shard (sqlite). Promise: locks, under a fresh sync guid, the free shard *with work for this worker* that was
-- served longest ago; a holder that still beats is never robbed. Says what work there is. When there is none it writes
-- nothing and says when the next row is due.
-- :lanes are the special lanes this worker may read: parked and suspect rows of the handlers it knows.
-- Differs from postgresql/acquire_shard.sql: three statements; choosing and taking are one write transaction.

-- name: choose
select l.shard_id,
       exists (select 1 from matrixsched_incoming_queue i where i.shard_id = l.shard_id) as incoming,
       exists (select 1 from matrixsched_processing_queue p
                where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now}) as due,
       case when exists (select 1 from matrixsched_processing_queue p
                          where p.shard_id = l.shard_id and p.lane >= 'handler!' and p.lane < 'handler;')
            then (select json_group_array(s.value) from json_each(:lanes) as s
                   where exists (select 1 from matrixsched_processing_queue p
                                  where p.shard_id = l.shard_id and p.lane = s.value and p.scheduled_at <= {now}))
            else '[]' end as lanes
  from matrixsched_shard_locks l
 where (not l.locked
        or l.last_heartbeat_at < {now} - :lease
        or l.last_heartbeat_at > {now} + :lease) -- from a clock that was set back since
   and (exists (select 1 from matrixsched_incoming_queue i where i.shard_id = l.shard_id)
        or exists (select 1 from matrixsched_processing_queue p
                    where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now})
        or case when exists (select 1 from matrixsched_processing_queue p
                              where p.shard_id = l.shard_id and p.lane >= 'handler!' and p.lane < 'handler;')
                then exists (select 1 from json_each(:lanes) as s
                              cross join matrixsched_processing_queue p
                              where p.shard_id = l.shard_id and p.lane = s.value and p.scheduled_at <= {now})
                else false end)
 order by l.last_processing_start_at, l.shard_id
 limit 1;

-- name: take
update matrixsched_shard_locks
   set locked = 1, last_lock_guid = :sync_guid, last_locked_by = :holder,
       last_processing_start_at = {now}, last_heartbeat_at = {now}
 where shard_id = :shard_id;

-- name: next_due
select min((select p.scheduled_at from matrixsched_processing_queue p
             where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at > {now}
             order by p.scheduled_at limit 1)) as next_due_at
  from matrixsched_shard_locks l;
