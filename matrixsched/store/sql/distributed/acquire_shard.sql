-- acquire_shard (distributed). Promise: as that of PostgreSQL, in steps: which gates are worth a look; which free shards have
-- work, read over all without a lock, the first :shards_max of them; then one after the other is taken by a compare-and-set on
-- its one row, if it is still free and still has work. Whoever comes too late takes another one, or looks again.
-- Its commit waits for the disk: where shards lie on several nodes, the setting that spares that is not theirs.

-- name: gates
with gate as materialized (
    select g.opens_at
      from (select case when l.slow_until > {now} and l.slow_requests is null then l.slow_until
                        when l.slow_until > {now} or l.requests is not null
                            then timestamptz 'epoch' + l.next_slot_ns / 1000 * interval '1 microsecond'
                                 - cast(:ahead as interval)
                        end as opens_at
              from matrixsched.limits l
             where l.name = 'global') g
     where g.opens_at > {now} and g.opens_at < {now} + interval '1 minute' -- later: let each lane be looked at once
),
ready as materialized (
    select h.lane, h.priority, h.ready_at
      from matrixsched.held_lanes h
     where h.ready_at <= {now} and h.handler = any (cast(:gated_handlers as text[]))
       and not exists (select from gate)
     order by h.priority, h.ready_at
     limit cast(:lanes_max as integer)
)
select {now} as now, exists (select from matrixsched.held_lanes) as are_listed,
       array(select lane from ready order by priority, ready_at) as lanes,
       array(select priority from ready order by priority, ready_at) as priorities,
       (select greatest(min(h.ready_at), (select opens_at from gate)) from matrixsched.held_lanes h
         where h.handler = any (cast(:gated_handlers as text[]))
           and (h.ready_at > {now} or exists (select from gate))
        having count(*) > 0) as next_due_at; -- else nothing waits for the gate to open

-- name: look
with held as materialized (
    select l.shard_id, l.last_heartbeat_at + cast(:lease as interval) as held_until
      from matrixsched.shard_locks l
     where l.locked and l.last_heartbeat_at >= {now} - cast(:lease as interval)
       and l.last_heartbeat_at <= {now} + cast(:lease as interval)
),
heads as materialized ( -- of each lane the shard of its first row that may go; shards that somebody holds do not count
    select distinct on (f.lane) f.shard_id, f.priority
      from (select l.shard_id, r.lane, r.priority,
                   (select min(p.scheduled_at) from matrixsched.processing_queue p
                     where p.shard_id = l.shard_id and p.lane = r.lane and p.lane >= '' and p.scheduled_at <= {now}
                       and (p.expires_at is null or p.expires_at > {now})) as scheduled_at
              from matrixsched.shard_locks l
             cross join unnest(cast(:ready_lanes as text[]), cast(:priorities as integer[])) as r (lane, priority)
             where l.shard_id not in (select shard_id from held)) f
     where f.scheduled_at is not null
     order by f.lane, f.scheduled_at
),
chosen as materialized (
    select l.shard_id, l.last_processing_start_at, w.has_events,
           case cast(:turn as text)
                when 'important' then (select min(h.priority) from heads h where h.shard_id = l.shard_id)
                when 'ungated' then cast(not (w.is_ungated is true) as integer) end as turn
      from matrixsched.shard_locks l
      left join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                          where p.shard_id = l.shard_id and p.lane >= 'coming' and p.lane < 'handler;'
                          order by p.lane, p.scheduled_at limit 1) first on true
      left join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                          where first.lane = 'coming' and p.shard_id = l.shard_id and p.lane > 'coming' and p.lane < 'handler;'
                          order by p.lane, p.scheduled_at limit 1) second on true
     cross join lateral (
           select coalesce(
                      (select true from matrixsched.incoming_queue i
                        where i.shard_id = l.shard_id
                        order by i.created_at limit 1),
                      (select true from matrixsched.processing_queue p
                        where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now}
                        order by p.scheduled_at limit 1)) as is_ungated,
                  coalesce(
                      nullif((first.lane = 'event' and first.scheduled_at <= {now}
                              or second.lane = 'event' and second.scheduled_at <= {now}) is true, false),
                      (select true from matrixsched.incoming_queue i
                        where i.shard_id = l.shard_id and i.lane = 'event'
                        order by i.created_at limit 1),
                      false) as has_events
           offset 0) w
     where (not l.locked
            or l.last_heartbeat_at < {now} - cast(:lease as interval)
            or l.last_heartbeat_at > {now} + cast(:lease as interval)) -- from a clock that was set back since
       and case when cast(:only_events as boolean) then w.has_events
                else coalesce(
                    w.is_ungated,
                    nullif((first.lane <= 'event' and first.scheduled_at <= {now}
                            or second.lane = 'event' and second.scheduled_at <= {now}) is true, false),
                    (select true from matrixsched.processing_queue p
                      where (first.lane >= 'event' or second.lane >= 'event') -- or none of them has rows
                        and p.shard_id = l.shard_id and p.lane = any (cast(:lanes as text[])) and p.lane >= ''
                        and p.scheduled_at <= {now}
                      limit 1),
                    l.shard_id in (select shard_id from heads where priority = (select min(priority) from heads))) end
     order by w.has_events desc, turn nulls last, l.last_processing_start_at, l.shard_id
     limit cast(:shards_max as integer)
),
placed as materialized (
    select shard_id,
           row_number() over (order by has_events desc, turn nulls last, last_processing_start_at, shard_id) as place,
           dense_rank() over (order by has_events desc, turn nulls last) as rank
      from chosen
)
select {now} as now, array(select shard_id from placed order by place) as shards,
       array(select rank from placed order by place) as ranks,
       (select min(priority) from heads) as priority,
       coalesce((select true from matrixsched.processing_queue p
                  where p.lane >= 'limit|' and p.lane < 'quota}'
                  limit 1), false) as are_held,
       (select min(held_until) + interval '1 microsecond' from held) as lapses_at;

-- name: rest
-- When the next row is due, where none is now that could be taken.
select min(least(n.ungated_at, n.first_at, n.second_at)) as next_due_at
  from (select (select min(p.scheduled_at) from matrixsched.processing_queue p
                 where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at > {now}) as ungated_at,
               (select min(p.scheduled_at) from matrixsched.processing_queue p
                 where p.shard_id = l.shard_id and p.lane = 'coming' and p.scheduled_at > {now}) as first_at,
               (select min(p.scheduled_at) from matrixsched.processing_queue p
                 where p.shard_id = l.shard_id and p.lane = 'event' and p.scheduled_at > {now}) as second_at
          from matrixsched.shard_locks l) n;

-- name: take
with free as materialized (
    select l.shard_id
      from matrixsched.shard_locks l
     where l.shard_id = cast(:shard_id as integer)
       and {in_time} -- else the last heartbeat of a live holder may seem to be that of a clock which was set back
       and (not l.locked
            or l.last_heartbeat_at < {now} - cast(:lease as interval)
            or l.last_heartbeat_at > {now} + cast(:lease as interval))
       and coalesce(
               (select true from matrixsched.incoming_queue i
                 where i.shard_id = cast(:shard_id as integer)
                   and (not cast(:only_events as boolean) or i.lane = 'event')
                 limit 1),
               (select true from matrixsched.processing_queue p
                 where p.shard_id = cast(:shard_id as integer) and p.scheduled_at <= {now} and p.lane >= ''
                   and p.lane = any (case when cast(:only_events as boolean) then array['event']
                                          else array['', 'coming', 'event'] || cast(:lanes as text[])
                                               || cast(:ready_lanes as text[]) end)
                 limit 1),
               false)
       /* pause point: acquire_lock */
       for update skip locked
),
taken as (
    update matrixsched.shard_locks l
       set locked = true, last_lock_guid = cast(:sync_guid as uuid), last_locked_by = cast(:holder as text),
           last_processing_start_at = {now}, last_heartbeat_at = {now}
      from free f
     where l.shard_id = cast(:shard_id as integer)
    returning l.shard_id
)
select {now} as now, t.shard_id,
       coalesce((select true from matrixsched.incoming_queue i
                  where i.shard_id = cast(:shard_id as integer)
                  limit 1), false) as incoming,
       coalesce((select true from matrixsched.incoming_queue i
                  where i.shard_id = cast(:shard_id as integer) and i.lane = 'event'
                  limit 1), false) as incoming_events,
       array(select asked.lane
               from unnest(array['event', '', 'coming'] || cast(:lanes as text[])) with ordinality as asked (lane, number)
              where (select true from matrixsched.processing_queue p
                      where p.shard_id = cast(:shard_id as integer) and p.lane = asked.lane and p.lane >= ''
                        and p.scheduled_at <= {now}
                      limit 1)
              order by asked.number) as lanes
  from taken t;
