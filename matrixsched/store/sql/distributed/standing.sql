-- standing (distributed). Promise: as that of PostgreSQL. What is of the action's own shard is read first; what is asked of all of
-- them is a part of its own, each with the bounds that it has there: how many rows were due before, and when any shard was held.
with mine as materialized (
    select a.*, coalesce(p.interrupted, 0) as interrupted_uncounted,
           exists (select from matrixsched.processing_queue r
                    where r.shard_id = cast(:shard_id as integer) and r.action_id = a.action_id
                      and r.claimed_by is not null and r.scheduled_at > {now}) as running,
           p.lane as row_lane, p.scheduled_at as row_due_at, p.claimed_at as row_claimed_at,
           p.claimed_by is not null as row_claimed,
           exists (select from matrixsched.incoming_queue i
                    where i.shard_id = cast(:shard_id as integer) and i.created_at = a.updated_at
                      and i.action_id = a.action_id and i.action_guid = a.action_guid) as is_new,
           (select max(r.scheduled_at) from matrixsched.processing_queue r
             where r.shard_id = cast(:shard_id as integer) and r.action_id = a.action_id and r.action_guid <> a.action_guid
               and r.claimed_by is not null and r.scheduled_at > {now}) as blocked_until,
           l.locked, l.last_locked_by, l.last_heartbeat_at
      from matrixsched.scheduled_actions a
      join matrixsched.shard_locks l on l.shard_id = cast(:shard_id as integer)
      left join matrixsched.processing_queue p
        on p.shard_id = cast(:shard_id as integer) and p.action_id = a.action_id and p.action_guid = a.action_guid
     where a.shard_id = cast(:shard_id as integer) and a.action_id = cast(:action_id as text)
),
before as materialized (
    select true from matrixsched.processing_queue b
     where b.lane = (select row_lane from mine) and b.lane >= 'limit|' and b.lane < 'quota}'
       and b.scheduled_at < (select row_due_at from mine)
     limit cast(:count_max as integer)
),
beats as materialized (
    select max(least(h.last_heartbeat_at, {now})) as seen_at from matrixsched.shard_locks h
)
select {now} as now, m.*, (select count(*) from before) as row_before,
       nullif(greatest((select seen_at from beats),
                       (select max(greatest(c.done_at, least(c.held_until, {now}))) from matrixsched.chores c
                         where c.name not in ('tidy', 'queues'))),
              timestamptz 'epoch') as worker_seen_at
  from mine m;
