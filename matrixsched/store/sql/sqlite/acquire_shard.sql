-- acquire_shard (sqlite). Promise: locks, under a fresh sync guid, the free shard *with work for this worker* that was
-- served longest ago; one with events that are due or new comes before all others; else :turn prefers one where the most
-- important rows wait before gates, or one with rows that need none. A holder that still beats is never robbed. Says what work there
-- is. When there is none it writes nothing and says when the next row is due or the lease of a holder ends. If :only_events, no other shards count.
-- Where neither gates nor events are used and nothing is parked, a shard without work costs three probes: `first`, the first
-- of the lanes coming, event, handler!… and handler:… that has rows, says which of them are worth one of their own.
-- :lanes are the special lanes this worker may read: parked and suspect rows of the handlers it knows.
-- Of gated lanes those count that are worth a look now and whose handlers, :gated_handlers, it knows; none while the global
-- limit is used up for the moment, and only the most important ones that have rows, wherever those are. Which shards have rows of theirs is read from the heads of the lanes over all shards that
-- nobody holds: one that its holder left behind must not hide the others.
-- Differs from postgresql/acquire_shard.sql: three statements; choosing and taking are one write transaction.

-- name: choose
with gate as materialized (
    select g.opens_at
      from (select case when l.slow_until > {now} and l.slow_requests is null then l.slow_until
                        when l.slow_until > {now} or l.requests is not null then l.next_slot_ns / 1000 - :ahead
                        end as opens_at
              from matrixsched_limits l
             where l.name = 'global') g
     where g.opens_at > {now} and g.opens_at < {now} + 60000000 -- later: let each lane be looked at once
),
held as materialized (
    select l.shard_id
      from matrixsched_shard_locks l
     where l.locked and l.last_heartbeat_at >= {now} - :lease and l.last_heartbeat_at <= {now} + :lease
),
ready as materialized (
    select h.lane, h.priority
      from matrixsched_held_lanes h
     where h.ready_at <= {now} and h.handler in (select value from json_each(:gated_handlers))
       and not exists (select 1 from gate)
     order by h.priority, h.ready_at
     limit :lanes_max
),
heads as materialized (
    select r.priority,
           (select p.shard_id from matrixsched_processing_queue p
             where p.lane = r.lane and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now}
               and (p.expires_at is null or p.expires_at > {now})
               and p.shard_id not in (select shard_id from held)
             order by p.scheduled_at limit 1) as shard_id
      from ready r
),
free as materialized (
    select l.shard_id, l.last_processing_start_at,
           (select p.lane from matrixsched_processing_queue p
             where p.shard_id = l.shard_id and p.lane >= 'coming' and p.lane < 'handler;'
             order by p.lane limit 1) as first
      from matrixsched_shard_locks l
     where not l.locked
        or l.last_heartbeat_at < {now} - :lease
        or l.last_heartbeat_at > {now} + :lease -- from a clock that was set back since
)
select l.shard_id,
       (select json_group_array(r.lane) from ready r
         where r.priority <= coalesce((select min(priority) from heads where shard_id is not null), r.priority))
           as gated_lanes,
       exists (select 1 from matrixsched_processing_queue p where p.lane >= 'limit|' and p.lane < 'quota}')
           or exists (select 1 from matrixsched_held_lanes) as holds,
       exists (select 1 from matrixsched_incoming_queue i where i.shard_id = l.shard_id) as incoming,
       exists (select 1 from matrixsched_incoming_queue i indexed by matrixsched_incoming_queue_events
                where i.shard_id = l.shard_id and i.lane = 'event') as incoming_events,
       exists (select 1 from matrixsched_processing_queue p
                where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now}) as due,
       case when l.first <= 'event'
            then exists (select 1 from matrixsched_processing_queue p
                          where p.shard_id = l.shard_id and p.lane = 'event' and p.scheduled_at <= {now})
            else false end as event,
       case when l.first = 'coming'
            then exists (select 1 from matrixsched_processing_queue p
                          where p.shard_id = l.shard_id and p.lane = 'coming' and p.scheduled_at <= {now})
            else false end as coming,
       case when l.first >= 'handler!'
                 or l.first is not null
                    and exists (select 1 from matrixsched_processing_queue p
                                 where p.shard_id = l.shard_id and p.lane >= 'handler!' and p.lane < 'handler;')
            then (select json_group_array(s.value) from json_each(:lanes) as s
                   where exists (select 1 from matrixsched_processing_queue p
                                  where p.shard_id = l.shard_id and p.lane = s.value and p.scheduled_at <= {now}))
            else '[]' end as lanes
  from free l
 where (exists (select 1 from matrixsched_incoming_queue i where i.shard_id = l.shard_id)
     or exists (select 1 from matrixsched_processing_queue p
                 where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at <= {now})
     or case when l.first <= 'event'
             then exists (select 1 from matrixsched_processing_queue p
                           where p.shard_id = l.shard_id and p.lane = 'event' and p.scheduled_at <= {now})
             else false end
     or case when l.first = 'coming'
             then exists (select 1 from matrixsched_processing_queue p
                           where p.shard_id = l.shard_id and p.lane = 'coming' and p.scheduled_at <= {now})
             else false end
     or case when l.first >= 'handler!'
                  or l.first is not null
                     and exists (select 1 from matrixsched_processing_queue p
                                  where p.shard_id = l.shard_id and p.lane >= 'handler!' and p.lane < 'handler;')
             then exists (select 1 from json_each(:lanes) as s
                           cross join matrixsched_processing_queue p
                           where p.shard_id = l.shard_id and p.lane = s.value and p.scheduled_at <= {now})
             else false end
     or l.shard_id in (select shard_id from heads
                        where priority = (select min(priority) from heads where shard_id is not null)))
   and (not :only_events or event or incoming_events)
 order by event or incoming_events desc,
          case :turn when 'important' then (select min(h.priority) from heads h where h.shard_id = l.shard_id)
                     when 'ungated' then not (incoming or due) end nulls last,
          l.last_processing_start_at, l.shard_id
 limit 1;

-- name: take
update matrixsched_shard_locks
   set locked = 1, last_lock_guid = :sync_guid, last_locked_by = :holder,
       last_processing_start_at = {now}, last_heartbeat_at = {now}
 where shard_id = :shard_id;

-- name: next_due
with gate as materialized (
    select g.opens_at
      from (select case when l.slow_until > {now} and l.slow_requests is null then l.slow_until
                        when l.slow_until > {now} or l.requests is not null then l.next_slot_ns / 1000 - :ahead
                        end as opens_at
              from matrixsched_limits l
             where l.name = 'global') g
     where g.opens_at > {now} and g.opens_at < {now} + 60000000 -- later: let each lane be looked at once
),
shards as materialized (
    select l.shard_id, (select p.lane from matrixsched_processing_queue p
                         where p.shard_id = l.shard_id and p.lane >= 'coming' and p.lane < 'handler;'
                         order by p.lane limit 1) as first
      from matrixsched_shard_locks l
)
select (select min((select p.scheduled_at from matrixsched_processing_queue p
                     where p.shard_id = l.shard_id and p.lane = '' and p.scheduled_at > {now}
                     order by p.scheduled_at limit 1))
          from matrixsched_shard_locks l) as ungated_at,
       (select min((select p.scheduled_at from matrixsched_processing_queue p
                     where p.shard_id = l.shard_id and p.lane = 'event' and p.scheduled_at > {now}
                     order by p.scheduled_at limit 1))
          from shards l
         where l.first <= 'event') as event_at,
       (select min((select p.scheduled_at from matrixsched_processing_queue p
                     where p.shard_id = l.shard_id and p.lane = 'coming' and p.scheduled_at > {now}
                     order by p.scheduled_at limit 1))
          from shards l
         where l.first = 'coming') as coming_at,
       -- What is ready is with somebody else at this moment: they hold the shard.
       (select max(min(case when h.ready_at > {now} then h.ready_at else {now} + 50000 end),
                   coalesce((select opens_at from gate), 0))
          from matrixsched_held_lanes h
         where h.handler in (select value from json_each(:gated_handlers))) as gated_at,
       -- Whoever holds a shard and does not beat any more may have left due rows in it.
       (select min(l.last_heartbeat_at) + :lease + 1
          from matrixsched_shard_locks l
         where l.locked and l.last_heartbeat_at between {now} - :lease and {now} + :lease) as free_at,
       exists (select 1 from matrixsched_processing_queue p where p.lane >= 'limit|' and p.lane < 'quota}')
           or exists (select 1 from matrixsched_held_lanes) as holds;
