-- expire_waiting (distributed). Promise: as that of PostgreSQL: the first :limit are looked for in all shards, without a lock,
-- and judged and written shard after shard.

-- name: late
select p.shard_id, p.action_id, p.action_guid
  from matrixsched.processing_queue p
 where p.expires_at <= {now} and (p.claimed_by is null or p.scheduled_at <= {now})
 order by p.expires_at
 limit cast(:limit as integer);

-- name: write
with late as materialized (
    select l.action_id, l.action_guid
      from unnest(cast(:action_ids as text[]), cast(:action_guids as uuid[])) as l (action_id, action_guid)
),
judged as materialized ( -- in the same snapshot: only then does another guid prove that a row is dead
    select l.*, a.live
      from late l
      left join lateral (select true as live from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = l.action_id
                            and a.action_guid = l.action_guid and a.state = 'live'
                         offset 0) a on true
),
current as materialized ( -- the action first, as `record` does; replaced since, it is not this version any more
    select j.action_id, j.action_guid
      from (select * from judged
             where live
                   /* pause point: expire_lock */
             order by action_id collate "C") j
     cross join lateral (select a.action_guid
                           from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = j.action_id
                            and a.action_guid = j.action_guid and a.state = 'live'
                            for no key update of a skip locked) a
),
held as materialized (
    select p.action_id, p.action_guid
      from (select action_id, action_guid from current
            union all
            select action_id, action_guid from judged where live is null) k
     cross join lateral (select p.action_id, p.action_guid
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = k.action_id
                            and p.action_guid = k.action_guid
                            and p.expires_at <= {now} and (p.claimed_by is null or p.scheduled_at <= {now})
                            for update of p skip locked) p
),
gone as (
    delete from matrixsched.processing_queue where {place in held by action_id, action_guid}
    returning action_id, action_guid, attempt, claimed_by, claimed_at,
              interrupted + cast(claimed_by is not null as integer) as interrupted
),
expired as (
    update matrixsched.scheduled_actions a
       set state = 'expired', finished_at = {now}, interrupted = a.interrupted + g.interrupted,
           last_outcome = 'expired', last_error = cast(:error as text), last_ended_at = {now}
      from gone g
     where a.shard_id = cast(:shard_id as integer) and a.action_id = g.action_id and a.action_guid = g.action_guid
       and a.state = 'live'
    returning a.action_id, a.action_guid, a.tick, a.template, g.attempt, g.claimed_by, g.claimed_at
),
remembered as (
    insert into matrixsched.attempt_history
           (shard_id, action_id, action_guid, attempt, tick, outcome, error, claimed_by, started_at, ended_at)
    select cast(:shard_id as integer), action_id, action_guid, attempt, tick, 'interrupted',
           'its worker did not report back', claimed_by, claimed_at, {now}
      from expired
     where claimed_by is not null
    on conflict do nothing
)
select (select count(*) from gone) as gone, (select count(*) from expired) as expired,
       array(select template from expired where template is not null) as templates;
