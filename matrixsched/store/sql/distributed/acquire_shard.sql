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
-- What the shards hold is read in two goes over all of them, `probed` and `found`; the rest judges these few rows alone. Each
-- probe is a join of its own: so it is carried out once, and only if those before it left a question. No probe is put under a
-- condition that the parameters alone decide: where one is false, Citus does not see any more that it is joined by the shard.
with probed as materialized (
    select l.shard_id, l.last_processing_start_at, l.is_held, l.held_until,
           new.found is true or due.found is true as is_ungated,
           (first.lane <= 'event' and first.is_due or second.lane = 'event' and second.is_due) is true as is_coming,
           (new_event.found or first.lane = 'event' and first.is_due or second.lane = 'event' and second.is_due) is true
           as has_events,
           special.found is true as is_special,
           gated.found is true as is_gated
      from (select l.shard_id, l.last_processing_start_at,
                   l.locked and l.last_heartbeat_at >= {now} - cast(:lease as interval)
                   and l.last_heartbeat_at <= {now} + cast(:lease as interval) -- else from a clock that was set back since
                   as is_held,
                   l.last_heartbeat_at + cast(:lease as interval) as held_until
              from matrixsched.shard_locks l) l
      left join lateral (select true as found from matrixsched.incoming_queue i
                          where not l.is_held and i.shard_id = l.shard_id
                          order by i.created_at limit 1) new on true
      left join lateral (select true as found from matrixsched.incoming_queue i
                          where new.found and i.shard_id = l.shard_id and i.lane = 'event'
                          order by i.created_at limit 1) new_event on true
      left join lateral (select true as found from matrixsched.processing_queue p
                          where not l.is_held and new.found is null
                            and p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now}
                          order by p.scheduled_at limit 1) due on true
      left join lateral (select p.lane, p.scheduled_at <= {now} as is_due from matrixsched.processing_queue p
                          where not l.is_held and p.shard_id = l.shard_id and p.lane >= 'coming' and p.lane < 'handler;'
                          order by p.lane, p.scheduled_at limit 1) first on true
      left join lateral (select p.lane, p.scheduled_at <= {now} as is_due from matrixsched.processing_queue p
                          where first.lane = 'coming' and p.shard_id = l.shard_id and p.lane > 'coming' and p.lane < 'handler;'
                          order by p.lane, p.scheduled_at limit 1) second on true
      left join lateral (select true as found from matrixsched.processing_queue p
                          where new.found is null and due.found is null
                            and (first.lane >= 'event' or second.lane >= 'event') -- or none of them has rows
                            and p.shard_id = l.shard_id and p.lane = any (cast(:lanes as text[])) and p.lane >= ''
                            and p.scheduled_at <= {now}
                          limit 1) special on true
      left join lateral (select true as found from matrixsched.processing_queue p
                          where p.shard_id = l.shard_id and p.lane >= 'limit|' -- the last lanes; said so, other shards' are not read
                          order by p.lane limit 1) gated on true
),
found as materialized ( -- of each lane the shard of its first row that may go; shards that somebody holds do not count
    select distinct on (f.lane) f.shard_id, f.priority, f.scheduled_at
      from (select l.shard_id, r.lane, r.priority,
                   (select min(p.scheduled_at) from matrixsched.processing_queue p
                     where p.shard_id = l.shard_id and p.lane = r.lane and p.lane >= '' and p.scheduled_at <= {now}
                       and (p.expires_at is null or p.expires_at > {now})) as scheduled_at
              from matrixsched.shard_locks l
             cross join unnest(cast(:ready_lanes as text[]), cast(:priorities as integer[])) as r (lane, priority)
             where not l.locked
                or l.last_heartbeat_at < {now} - cast(:lease as interval)
                or l.last_heartbeat_at > {now} + cast(:lease as interval)) f
     order by f.lane, f.scheduled_at
),
heads as materialized ( -- not asked above, where it would have each lane read twice
    select shard_id, priority from found where scheduled_at is not null
),
chosen as materialized (
    select p.shard_id, p.last_processing_start_at, p.has_events,
           case cast(:turn as text)
                when 'important' then (select min(h.priority) from heads h where h.shard_id = p.shard_id)
                when 'ungated' then cast(not p.is_ungated as integer) end as turn
      from probed p
     where not p.is_held
       and case when cast(:only_events as boolean) then p.has_events
                else p.is_ungated or p.is_coming or p.is_special
                     or p.shard_id in (select shard_id from heads where priority = (select min(priority) from heads)) end
     order by p.has_events desc, turn nulls last, p.last_processing_start_at, p.shard_id
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
       exists (select from probed where is_gated) as are_held,
       (select min(held_until) + interval '1 microsecond' from probed where is_held) as lapses_at;

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
