-- extend (distributed). Promise: as that of PostgreSQL, said of one shard. It may reach the server after another one whose
-- time was asked later, so a lease that ends later is left as it is; one that ends more than a whole lease later comes from a clock
-- that was set back since. What reaches the server too late prolongs nothing: busy.
with held as materialized (
    select * from unnest(
        cast(:shard_ids as integer[]), cast(:action_ids as text[]), cast(:action_guids as uuid[]),
        cast(:attempts as integer[]), cast(:claimed_by as uuid[]), cast(:longest as interval[])
    ) as h (shard_id, action_id, action_guid, attempt, claimed_by, longest)
),
found as materialized (
    select h.action_guid, p.ctid is not null as present
      from held h
      left join matrixsched.processing_queue p
        on p.shard_id = cast(:shard_id as integer) and p.action_id = h.action_id and p.action_guid = h.action_guid
       and p.attempt = h.attempt and p.claimed_by = h.claimed_by
),
mine as materialized (
    select p.shard_id, p.action_id, p.action_guid, h.longest
      from held h
      join matrixsched.processing_queue p
        on p.shard_id = cast(:shard_id as integer) and p.action_id = h.action_id and p.action_guid = h.action_guid
       and p.attempt = h.attempt and p.claimed_by = h.claimed_by
     where {in_time}
       /* pause point: extend_lock */
       for update of p skip locked
),
extended as (
    update matrixsched.processing_queue p
       set scheduled_at = least(greatest({now} + cast(:attempt_lease as interval),
                                         case when p.scheduled_at - {now} <= 2 * cast(:attempt_lease as interval)
                                              then p.scheduled_at end),
                                (p.claimed_at at time zone 'UTC' + m.longest) at time zone 'UTC') -- days of 24 hours
      from mine m
     where p.shard_id = cast(:shard_id as integer) and p.action_id = m.action_id and p.action_guid = m.action_guid
    returning p.action_guid
)
select f.action_guid,
       case when e.action_guid is not null then 'extended' when f.present then 'busy' else 'lost' end as answer
  from found f
  left join extended e on e.action_guid = f.action_guid;
