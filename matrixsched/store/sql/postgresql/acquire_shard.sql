-- acquire_shard (postgresql). Promise: locks, under a fresh sync guid, the free shard *with work for this worker* that was
-- served longest ago; one with events that are due or new comes before all others; else :turn prefers one where the most
-- important rows wait before gates, or one with rows that need none. A holder that still beats is never robbed. Says what work there
-- is. When there is none it writes nothing and says when the next row is due or the lease of a holder ends. If :only_events, no other shards count.
-- Its commit does not wait for the disk: a lock is worth nothing but for what is written under it,
-- and whatever is, is flushed together with it. If the server crashes before, nobody holds the shard, and the fence is shut.
-- "The first row in index order, if there is one" is written out instead of EXISTS: where statistics are missing, old or
-- skewed, PostgreSQL expects to find a row soon and reads the whole table for every shard that has none.
-- A shard without work costs three probes where neither gates nor events are used and nothing is parked: incoming, ungated,
-- and the head, `first`, of the first of the lanes coming, event, handler!… and handler:… that has rows. If that is coming,
-- the head of the next one, `second`, is looked at as well. A lane lies in the order of its times: its head says if any is due.
-- :lanes are the special lanes this worker may read: parked and suspect rows of the handlers it knows. Of gated lanes those
-- count that are worth a look now and whose handlers, :gated_handlers, it knows; none while the global limit is used up for
-- the moment, and only the most important ones that have rows, wherever those are. Which shards have rows of theirs is read from the heads of the lanes over all shards that nobody holds: one
-- that its holder left behind must not hide the others.
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
held as materialized (
    select l.shard_id, l.last_heartbeat_at + cast(:lease as interval) as held_until
      from matrixsched.shard_locks l
     where l.locked and l.last_heartbeat_at >= {now} - cast(:lease as interval)
       and l.last_heartbeat_at <= {now} + cast(:lease as interval)
),
ready as materialized (
    select h.lane, h.priority
      from matrixsched.held_lanes h
     where h.ready_at <= {now} and h.handler = any (cast(:gated_handlers as text[]))
       and not exists (select from gate)
     order by h.priority, h.ready_at
     limit cast(:lanes_max as integer)
),
heads as materialized (
    select p.shard_id, r.priority
      from ready r
     cross join lateral (select p.shard_id from matrixsched.processing_queue p
                          where p.lane = r.lane and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now}
                            and (p.expires_at is null or p.expires_at > {now})
                            and p.shard_id not in (select shard_id from held)
                          order by p.scheduled_at limit 1) p
),
chosen as materialized (
    select l.shard_id
      from matrixsched.shard_locks l
     cross join lateral (select coalesce(
               (select true from matrixsched.incoming_queue i
                 where i.shard_id = l.shard_id
                 order by i.created_at limit 1),
               (select true from matrixsched.processing_queue p
                 where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now}
                 order by p.scheduled_at limit 1)) as ungated offset 0) w
      left join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                          where p.shard_id = l.shard_id and p.lane >= 'coming' and p.lane < 'handler;'
                          order by p.lane, p.scheduled_at limit 1) first on true
      left join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                          where first.lane = 'coming' and p.shard_id = l.shard_id and p.lane > 'coming' and p.lane < 'handler;'
                          order by p.lane, p.scheduled_at limit 1) second on true
     where (not l.locked
            or l.last_heartbeat_at < {now} - cast(:lease as interval)
            or l.last_heartbeat_at > {now} + cast(:lease as interval)) -- from a clock that was set back since
       and coalesce(
               w.ungated,
               nullif((first.lane <= 'event' and first.scheduled_at <= {now}
                       or second.lane = 'event' and second.scheduled_at <= {now}) is true, false),
               case when case when first.lane >= 'handler!' or second.lane >= 'handler!' then true
                              when first.lane = 'event' or second.lane = 'event' -- which hides them
                              then (select true from matrixsched.processing_queue p
                                     where p.shard_id = l.shard_id and p.lane >= 'handler!' and p.lane < 'handler;'
                                     order by p.lane limit 1) end
                    then (select true from unnest(cast(:lanes as text[])) as asked (lane)
                           cross join lateral (select from matrixsched.processing_queue p
                                                where p.shard_id = l.shard_id and p.lane = asked.lane and p.lane >= ''
                                                  and p.scheduled_at <= {now}
                                                order by p.scheduled_at limit 1) w
                           limit 1) end,
               l.shard_id in (select shard_id from heads where priority = (select min(priority) from heads)))
       and (not cast(:only_events as boolean)
            or coalesce(
               nullif((first.lane = 'event' and first.scheduled_at <= {now}
                       or second.lane = 'event' and second.scheduled_at <= {now}) is true, false),
               (select true from matrixsched.incoming_queue i
                 where i.shard_id = l.shard_id and i.lane = 'event'
                 order by i.created_at limit 1),
               false))
       /* pause point: acquire_lock */
     order by coalesce(
               nullif((first.lane = 'event' and first.scheduled_at <= {now}
                       or second.lane = 'event' and second.scheduled_at <= {now}) is true, false),
               (select true from matrixsched.incoming_queue i
                 where i.shard_id = l.shard_id and i.lane = 'event'
                 order by i.created_at limit 1),
               false) desc,
              case cast(:turn as text)
                   when 'important' then (select min(h.priority) from heads h where h.shard_id = l.shard_id)
                   when 'ungated' then cast(not w.ungated as integer) end nulls last,
              l.last_processing_start_at, l.shard_id
     limit 1
       for update of l skip locked
),
unflushed as materialized (
    select set_config('synchronous_commit', 'off', true) from chosen
),
taken as (
    update matrixsched.shard_locks l
       set locked = true, last_lock_guid = cast(:sync_guid as uuid), last_locked_by = cast(:holder as text),
           last_processing_start_at = {now}, last_heartbeat_at = {now}
      from chosen c
     where l.shard_id = c.shard_id and (select count(*) from unflushed) > 0
    returning l.shard_id
)
select {now} as now, t.shard_id,
       coalesce((select true from matrixsched.incoming_queue i
                  where i.shard_id = t.shard_id
                  order by i.created_at limit 1), false) as incoming,
       coalesce((select true from matrixsched.incoming_queue i
                  where i.shard_id = t.shard_id and i.lane = 'event'
                  order by i.created_at limit 1), false) as incoming_events,
       coalesce((select true from matrixsched.processing_queue p
                  where p.shard_id = t.shard_id and p.lane = '' and p.scheduled_at <= {now}
                  order by p.scheduled_at limit 1), false) as due,
       (first.lane = 'event' and first.scheduled_at <= {now}
        or second.lane = 'event' and second.scheduled_at <= {now}) is true as event,
       (first.lane = 'coming' and first.scheduled_at <= {now}) is true as coming,
       case when case when first.lane >= 'handler!' or second.lane >= 'handler!' then true
                      when first.lane = 'event' or second.lane = 'event'
                      then (select true from matrixsched.processing_queue p
                             where p.shard_id = t.shard_id and p.lane >= 'handler!' and p.lane < 'handler;'
                             order by p.lane limit 1) end
            then array(select asked.lane from unnest(cast(:lanes as text[])) as asked (lane)
                        cross join lateral (select from matrixsched.processing_queue p
                                             where p.shard_id = t.shard_id and p.lane = asked.lane and p.lane >= ''
                                               and p.scheduled_at <= {now}
                                             order by p.scheduled_at limit 1) w)
            else '{}' end as lanes,
       case when t.shard_id is null then '{}'
            else array(select r.lane from ready r
                        where r.priority <= coalesce((select min(priority) from heads), r.priority)) end as gated_lanes,
       coalesce((select true from matrixsched.processing_queue p
                  where p.lane >= 'limit|' and p.lane < 'quota}'
                  order by p.lane limit 1), false)
           or exists (select from matrixsched.held_lanes) as holds,
       case when t.shard_id is null and not cast(:only_events as boolean) then least(
           -- What is ready is with somebody else at this moment: took it just now, or holds the shard.
           (select {now} + case when exists (select from heads) then interval '10 ms' else interval '50 ms' end
              from ready limit 1),
           (select min(n.scheduled_at)
              from matrixsched.shard_locks l
             cross join lateral (select p.scheduled_at from matrixsched.processing_queue p
                                  where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at > {now}
                                  order by p.scheduled_at limit 1) n),
           (select least(min(n.first_at), min(n.second_at))
              from matrixsched.shard_locks l
              left join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                                  where p.shard_id = l.shard_id and p.lane >= 'coming' and p.lane < 'handler;'
                                  order by p.lane, p.scheduled_at limit 1) first on true
              left join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                                  where first.lane = 'coming' and p.shard_id = l.shard_id
                                    and p.lane > 'coming' and p.lane < 'handler;'
                                  order by p.lane, p.scheduled_at limit 1) second on true
             -- Where the head is due, somebody else has the shard; the next one counts.
             cross join lateral (
                   select case when first.lane <= 'event' and first.scheduled_at > {now} then first.scheduled_at
                               when first.lane <= 'event'
                               then (select p.scheduled_at from matrixsched.processing_queue p
                                      where p.shard_id = l.shard_id and p.lane = first.lane and p.lane >= '' and p.scheduled_at > {now}
                                      order by p.scheduled_at limit 1) end as first_at,
                          case when second.lane = 'event' and second.scheduled_at > {now} then second.scheduled_at
                               when second.lane = 'event'
                               then (select p.scheduled_at from matrixsched.processing_queue p
                                      where p.shard_id = l.shard_id and p.lane = second.lane and p.lane >= '' and p.scheduled_at > {now}
                                      order by p.scheduled_at limit 1) end as second_at
                   offset 0) n),
           (select greatest(min(h.ready_at), (select opens_at from gate)) from matrixsched.held_lanes h
             where h.handler = any (cast(:gated_handlers as text[]))
               and (h.ready_at > {now} or exists (select from gate))
            having count(*) > 0), -- else nothing waits for the gate to open
           -- Whoever holds a shard and does not beat any more may have left due rows in it.
           (select min(h.held_until) + interval '1 microsecond' from held h)
       ) end as next_due_at
  from (select) as always
  left join taken t on true
  left join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                      where p.shard_id = t.shard_id and p.lane >= 'coming' and p.lane < 'handler;'
                      order by p.lane, p.scheduled_at limit 1) first on true
  left join lateral (select p.lane, p.scheduled_at from matrixsched.processing_queue p
                      where first.lane = 'coming' and p.shard_id = t.shard_id and p.lane > 'coming' and p.lane < 'handler;'
                      order by p.lane, p.scheduled_at limit 1) second on true;
