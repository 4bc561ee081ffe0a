-- mend (postgresql). Promise: each statement mends one kind of fault, at the places that are named, if it is still there: it is
-- judged anew by the statement that writes. Rows in somebody's hands are left, for nobody is waited for; the move of an action to
-- its shard waits for at most lock_timeout. Sent again it does nothing. Answers with what was mended.

-- name: lost
-- Put back as it was written with the action: a twin writes the very same row, and waits for the first to end. If the action
-- is replaced meanwhile, it is dead.
with given as materialized (
    select g.action_id, g.action_guid
      from unnest(cast(:subjects as text[]), cast(:guids as uuid[])) as g (action_id, action_guid)
),
queued as materialized (
    select i.action_id, i.action_guid
      from matrixsched.incoming_queue i
     where i.shard_id = cast(:shard_id as integer) and i.action_id = any (cast(:subjects as text[]))
)
insert into matrixsched.incoming_queue as i (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select {a.shard_id}, a.updated_at, a.action_id, a.action_guid, a.scheduled_at, a.lane, a.expires_at
  from given g
 cross join lateral (select a.*
                       from matrixsched.scheduled_actions a
                      where a.shard_id = cast(:shard_id as integer) and a.action_id = g.action_id
                        and a.action_guid = g.action_guid and a.state = 'live'
                     offset 0) a
 where not exists (select from matrixsched.processing_queue p
                    where p.shard_id = {a.shard_id} and p.action_id = a.action_id and p.action_guid = a.action_guid)
   and not exists (select from queued q where q.action_id = a.action_id and q.action_guid = a.action_guid)
   /* pause point: mend_lost */
on conflict do nothing
returning i.action_id as subject, cast(i.action_guid as text) as guid;

-- name: twice
-- The row in processing stays, or else the first one that came; a move that meets the others would drop them, too.
with queued as materialized (
    select i.shard_id, i.created_at, i.action_id, i.action_guid,
           row_number() over (partition by i.action_id, i.action_guid order by i.created_at) as number
      from matrixsched.incoming_queue i
     where i.shard_id = cast(:shard_id as integer) and i.action_id = any (cast(:subjects as text[]))
       and i.action_guid = any (cast(:guids as uuid[]))
),
excess as materialized (
    select i.ctid
      from queued q
     cross join lateral (select i.ctid
                           from matrixsched.incoming_queue i
                          where i.shard_id = {q.shard_id} and i.created_at = q.created_at and i.action_id = q.action_id
                            and i.action_guid = q.action_guid
                            /* pause point: mend_twice_lock */
                            for update of i skip locked) i
     where q.number > 1
        or exists (select from matrixsched.processing_queue p
                    where p.shard_id = {q.shard_id} and p.action_id = q.action_id and p.action_guid = q.action_guid)
),
gone as (
    delete from matrixsched.incoming_queue where {place} = any (array(select ctid from excess))
    returning action_id, action_guid
)
select distinct action_id as subject, cast(action_guid as text) as guid from gone;

-- name: unwanted
-- No live action is at this version, and a guid never comes back; an attempt under way is left to its end.
with given as materialized (
    select g.action_id, g.action_guid
      from unnest(cast(:subjects as text[]), cast(:guids as uuid[])) as g (action_id, action_guid)
      left join lateral (select true as live
                           from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = g.action_id
                            and a.action_guid = g.action_guid and a.state = 'live'
                         offset 0) a on true
     where a.live is null
),
incoming as materialized (
    select i.ctid
      from matrixsched.incoming_queue i
     where i.shard_id = cast(:shard_id as integer) and i.action_id = any (cast(:subjects as text[]))
       and (i.action_id, i.action_guid) in (select action_id, action_guid from given)
       /* pause point: mend_incoming_lock */
       for update of i skip locked
),
processing as materialized (
    select p.ctid
      from given g
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = g.action_id
                            and p.action_guid = g.action_guid and (p.claimed_by is null or p.scheduled_at <= {now})
                            /* pause point: mend_unwanted_lock */
                            for update of p skip locked) p
),
gone_incoming as (
    delete from matrixsched.incoming_queue where {place} = any (array(select ctid from incoming))
    returning action_id, action_guid
),
gone_processing as ( -- by place; a row that changed since the snapshot has another one and is left
    delete from matrixsched.processing_queue where {place} = any (array(select ctid from processing))
    returning action_id, action_guid
)
select action_id as subject, cast(action_guid as text) as guid from gone_incoming
union
select action_id, cast(action_guid as text) from gone_processing;

-- name: lease
with stranded as materialized (
    select p.ctid
      from unnest(cast(:subjects as text[]), cast(:guids as uuid[])) as g (action_id, action_guid)
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = g.action_id
                            and p.action_guid = g.action_guid and p.claimed_by is not null
                            and p.scheduled_at > {now} + cast(:reach as interval)
                            /* pause point: mend_lease_lock */
                            for update of p skip locked) p
)
update matrixsched.processing_queue set scheduled_at = {now} + cast(:reach as interval)
 where {place} = any (array(select ctid from stranded))
returning action_id as subject, cast(action_guid as text) as guid;

-- name: time
-- Rows of incoming never change, for whoever moves one has to find it where it was: another one takes its place, as old as its
-- action, by which it is looked for.
with given as materialized (
    select a.*
      from unnest(cast(:subjects as text[]), cast(:guids as uuid[])) as g (action_id, action_guid)
     cross join lateral (select a.action_id, a.action_guid, a.scheduled_at, a.expires_at, a.lane, a.updated_at
                           from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = g.action_id
                            and a.action_guid = g.action_guid and a.state = 'live'
                         offset 0) a
),
incoming as materialized (
    select i.*
      from (select i.created_at, i.action_id, i.action_guid
              from matrixsched.incoming_queue i
              join given g on g.action_id = i.action_id and g.action_guid = i.action_guid
             where i.shard_id = cast(:shard_id as integer) and i.action_id = any (cast(:subjects as text[]))
               and (i.scheduled_at <> g.scheduled_at or i.expires_at is distinct from g.expires_at)) f
     cross join lateral (select i.created_at, i.action_id, i.action_guid
                           from matrixsched.incoming_queue i
                          where i.shard_id = cast(:shard_id as integer) and i.created_at = f.created_at
                            and i.action_id = f.action_id and i.action_guid = f.action_guid
                            /* pause point: mend_time_incoming_lock */
                            for update of i skip locked) i
),
gone as (
    delete from matrixsched.incoming_queue
     where shard_id = cast(:shard_id as integer)
       and (created_at, action_id, action_guid) in (select created_at, action_id, action_guid from incoming)
    returning action_id, action_guid
),
queued as (
    insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
    select distinct cast(:shard_id as integer), g.updated_at, g.action_id, g.action_guid, g.scheduled_at, g.lane, g.expires_at
      from given g
      join gone o on o.action_id = g.action_id and o.action_guid = g.action_guid
),
processing as materialized (
    select p.ctid, g.action_id, g.action_guid, g.scheduled_at, g.expires_at
      from given g
     cross join lateral (select {place of p} as ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = g.action_id
                            and p.action_guid = g.action_guid
                            and (p.claimed_by is null
                                 and (p.scheduled_at < g.scheduled_at
                                      or p.scheduled_at > greatest(g.scheduled_at, {now} + cast(:reach as interval)))
                                 or p.expires_at is distinct from g.expires_at)
                            /* pause point: mend_time_lock */
                            for update of p skip locked) p
),
changed as ( -- the end of a lease is not the time of a row
    update matrixsched.processing_queue p
       set expires_at = t.expires_at,
           scheduled_at = case when p.claimed_by is null
                                    and (p.scheduled_at < t.scheduled_at
                                         or p.scheduled_at > greatest(t.scheduled_at, {now} + cast(:reach as interval)))
                               then t.scheduled_at else p.scheduled_at end
      from processing t
     where {p.place is t by action_id, action_guid}
    returning p.action_id, p.action_guid
)
select action_id as subject, cast(action_guid as text) as guid from gone
union
select action_id, cast(action_guid as text) from changed;

-- name: lane
with unread as materialized (
    select p.ctid, case when a.lane = 'event' then 'event' else '' end as lane
      from unnest(cast(:subjects as text[]), cast(:guids as uuid[])) as g (action_id, action_guid)
     cross join lateral (select a.handler, a.priority, a.lane
                           from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = g.action_id
                            and a.action_guid = g.action_guid and a.state = 'live'
                         offset 0) a
     cross join lateral (select p.ctid
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = g.action_id
                            and p.action_guid = g.action_guid
                            and p.lane not in ('', 'coming', 'event', 'handler:' || a.handler, 'handler!' || a.handler)
                            and not (p.lane >= 'limit|' and p.lane < 'quota}'
                                     and p.lane = case when a.lane <> '' then a.lane
                                                       else 'limit|' || a.priority || '||'
                                                            || replace(replace(a.handler, '%', '%25'), '|', '%7C') end)
                            /* pause point: mend_lane_lock */
                            for update of p skip locked) p
)
update matrixsched.processing_queue p set lane = u.lane
  from unread u
 where {p.place} = u.ctid
returning p.action_id as subject, cast(p.action_guid as text) as guid;

-- name: counters
with remembered as materialized (
    select g.action_id, g.action_guid, h.failed, h.interrupted, coalesce(p.interrupted, 0) as uncounted
      from unnest(cast(:subjects as text[]), cast(:guids as uuid[])) as g (action_id, action_guid)
     cross join lateral (select count(*) filter (where h.outcome in ('failed', 'timed_out')) as failed,
                                count(*) filter (where h.outcome = 'interrupted') as interrupted
                           from matrixsched.attempt_history h
                          where h.shard_id = cast(:shard_id as integer) and h.action_id = g.action_id
                            and h.action_guid = g.action_guid) h
      left join lateral (select p.interrupted
                           from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = g.action_id
                            and p.action_guid = g.action_guid
                         offset 0) p on true
),
wrong as materialized (
    select a.ctid, r.failed, r.interrupted - r.uncounted as interrupted
      from (select * from remembered order by action_id collate "C") r
     cross join lateral (select a.ctid
                           from matrixsched.scheduled_actions a
                          where a.shard_id = cast(:shard_id as integer) and a.action_id = r.action_id
                            and a.action_guid = r.action_guid
                            and (a.failed < greatest(r.failed, a.consecutive_failures)
                                 or a.interrupted < r.interrupted - r.uncounted)
                            /* pause point: mend_counters_lock */
                            for no key update of a skip locked) a
)
update matrixsched.scheduled_actions a -- by place; one that changed since the snapshot has another one and is left
   set failed = greatest(a.failed, w.failed, a.consecutive_failures), interrupted = greatest(a.interrupted, w.interrupted)
  from wrong w
 where {a.place} = w.ctid
returning a.action_id as subject, cast(a.action_guid as text) as guid;

-- name: forgotten
with gone as (
    delete from matrixsched.attempt_history
     where {place} = any (array(
               select h.ctid
                 from matrixsched.attempt_history h
                where h.shard_id = cast(:shard_id as integer) and h.action_id = any (cast(:subjects as text[]))
                  and not exists (select from matrixsched.scheduled_actions a
                                   where a.shard_id = {h.shard_id} and a.action_id = h.action_id)
                  /* pause point: mend_forgotten_lock */
                  for update of h skip locked))
    returning action_id
)
select distinct action_id as subject, cast(null as text) as guid from gone;

-- name: misplaced
-- With its history; it is queued anew there, and what waits for it here goes. Only if all of its rows here can be taken away:
-- one that somebody claims or moves at this very moment would be run here as well.
with patience as materialized (
    select set_config('lock_timeout', cast(:lock_timeout as text), true)
),
here as materialized ( -- moved by place: one that changed since the snapshot has another one and is left
    select a.ctid
      from matrixsched.scheduled_actions a
     where a.shard_id = cast(:shard_id as integer) and a.action_id = cast(:subject as text)
       and (select count(*) from patience) >= 0
       /* pause point: mend_misplaced_lock */
       for update of a
),
processing as materialized (
    select p.ctid
      from here
     cross join lateral (select p.ctid as place, p.action_guid from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = cast(:subject as text)
                         offset 0) s
     cross join lateral (select p.ctid from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = cast(:subject as text)
                            and p.action_guid = s.action_guid and (p.claimed_by is null or p.scheduled_at <= {now})
                            for update of p skip locked) p
     where p.ctid = s.place
),
incoming as materialized (
    select i.ctid
      from here
     cross join lateral (select i.ctid from matrixsched.incoming_queue i
                          where i.shard_id = cast(:shard_id as integer) and i.action_id = cast(:subject as text)
                            for update of i skip locked) i
),
moved as (
    update matrixsched.scheduled_actions a
       set shard_id = cast(:right_shard as integer),
           interrupted = a.interrupted + coalesce(
               (select p.interrupted from matrixsched.processing_queue p
                 where p.shard_id = {a.shard_id} and p.action_id = a.action_id and p.action_guid = a.action_guid), 0)
     where a.shard_id = cast(:shard_id as integer) and a.ctid = (select ctid from here)
       and not exists (select from matrixsched.scheduled_actions b
                        where b.shard_id = cast(:right_shard as integer) and b.action_id = cast(:subject as text))
       and (select count(*) from processing)
           = (select count(*) from matrixsched.processing_queue p
               where p.shard_id = cast(:shard_id as integer) and p.action_id = cast(:subject as text))
       and (select count(*) from incoming)
           = (select count(*) from matrixsched.incoming_queue i
               where i.shard_id = cast(:shard_id as integer) and i.action_id = cast(:subject as text))
    returning a.action_id, a.action_guid, a.state, a.updated_at, a.scheduled_at, a.lane, a.expires_at
),
queued as (
    insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
    select cast(:right_shard as integer), updated_at, action_id, action_guid, scheduled_at, lane, expires_at
      from moved
     where state = 'live'
    on conflict do nothing
),
gone_incoming as (
    delete from matrixsched.incoming_queue
     where {place} = any (array(select ctid from incoming))
       and exists (select from moved)
),
gone_processing as (
    delete from matrixsched.processing_queue
     where {place} = any (array(select ctid from processing))
       and exists (select from moved)
),
remembered as (
    update matrixsched.attempt_history h set shard_id = cast(:right_shard as integer)
     where h.shard_id = cast(:shard_id as integer) and h.action_id = (select action_id from moved)
       and not exists (select from matrixsched.attempt_history k
                        where k.shard_id = cast(:right_shard as integer) and k.action_id = cast(:subject as text))
)
select action_id as subject, cast(null as text) as guid from moved;

-- name: misplaced_drop
-- Of two actions of one id the one that was changed last stays, as where both were written in one shard; of two that were
-- changed at the same time the one at its place. The other one goes from :shard_id, with its history and all of its rows, or
-- not at all.
with patience as materialized (
    select set_config('lock_timeout', cast(:lock_timeout as text), true)
),
other as materialized ( -- which nobody may prune meanwhile
    select b.updated_at
      from matrixsched.scheduled_actions b
     where b.shard_id = cast(:other_shard as integer) and b.action_id = cast(:subject as text)
       and (select count(*) from patience) >= 0
       for key share of b skip locked
),
here as materialized (
    select a.ctid
      from matrixsched.scheduled_actions a
     where a.shard_id = cast(:shard_id as integer) and a.action_id = cast(:subject as text)
       and exists (select from other o
                    where a.updated_at < o.updated_at
                       or a.updated_at = o.updated_at and cast(:is_astray as boolean))
       /* pause point: mend_misplaced_drop_lock */
       for update of a
),
processing as materialized (
    select p.ctid
      from here
     cross join lateral (select p.ctid as place, p.action_guid from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = cast(:subject as text)
                         offset 0) s
     cross join lateral (select p.ctid from matrixsched.processing_queue p
                          where p.shard_id = cast(:shard_id as integer) and p.action_id = cast(:subject as text)
                            and p.action_guid = s.action_guid and (p.claimed_by is null or p.scheduled_at <= {now})
                            for update of p skip locked) p
     where p.ctid = s.place
),
incoming as materialized (
    select i.ctid
      from here
     cross join lateral (select i.ctid from matrixsched.incoming_queue i
                          where i.shard_id = cast(:shard_id as integer) and i.action_id = cast(:subject as text)
                            for update of i skip locked) i
),
gone as ( -- by place; one that changed since the snapshot has another one and is left
    delete from matrixsched.scheduled_actions a
     where a.shard_id = cast(:shard_id as integer) and a.ctid = (select ctid from here)
       and (select count(*) from processing)
           = (select count(*) from matrixsched.processing_queue p
               where p.shard_id = cast(:shard_id as integer) and p.action_id = cast(:subject as text))
       and (select count(*) from incoming)
           = (select count(*) from matrixsched.incoming_queue i
               where i.shard_id = cast(:shard_id as integer) and i.action_id = cast(:subject as text))
    returning a.action_id
),
gone_incoming as (
    delete from matrixsched.incoming_queue
     where {place} = any (array(select ctid from incoming))
       and exists (select from gone)
),
gone_processing as (
    delete from matrixsched.processing_queue
     where {place} = any (array(select ctid from processing))
       and exists (select from gone)
),
forgotten as (
    delete from matrixsched.attempt_history h
     where h.shard_id = cast(:shard_id as integer) and h.action_id = (select action_id from gone)
)
select action_id as subject, cast(null as text) as guid from gone;

-- name: no_lock
insert into matrixsched.shard_locks as l (shard_id, last_lock_guid)
select cast(:shard_id as integer), cast(:fresh_guid as uuid)
on conflict do nothing
returning cast(l.shard_id as text) as subject, cast(null as text) as guid;

-- name: extra_lock
with extra as materialized (
    select l.ctid
      from matrixsched.shard_locks l
     where l.shard_id = cast(:shard_id as integer) and l.last_lock_guid = any (cast(:guids as uuid[]))
       /* pause point: mend_extra_lock_lock */
       for update skip locked
)
delete from matrixsched.shard_locks where {place} = any (array(select ctid from extra))
returning cast(shard_id as text) as subject, cast(last_lock_guid as text) as guid;

-- name: lock_time
with ahead as materialized (
    select l.ctid
      from matrixsched.shard_locks l
     where l.shard_id = cast(:shard_id as integer) and l.last_lock_guid = any (cast(:guids as uuid[]))
       and greatest(l.last_processing_start_at, l.last_heartbeat_at) > {now} + cast(:reach as interval)
       /* pause point: mend_lock_time_lock */
       for no key update skip locked
)
update matrixsched.shard_locks
   set last_processing_start_at = least(last_processing_start_at, {now}), last_heartbeat_at = least(last_heartbeat_at, {now})
 where {place} = any (array(select ctid from ahead))
returning cast(shard_id as text) as subject, cast(last_lock_guid as text) as guid;

-- name: chore
insert into matrixsched.chores as c (name)
select g.name from unnest(cast(:subjects as text[])) as g (name)
on conflict do nothing
returning c.name as subject, cast(null as text) as guid;

-- name: quota
-- As a migration made it.
insert into matrixsched.quota_settings (singleton, updated_at) values (true, {now})
on conflict do nothing
returning 'settings' as subject, cast(null as text) as guid;

-- name: unbalanced
-- The mark is deleted by the balance that it asks for; one too many costs a balance.
insert into matrixsched.semaphore_changes as m (semaphore, change_guid)
select s.key, cast(:fresh_guid as uuid)
  from matrixsched.semaphores s
 where s.key = any (cast(:subjects as text[]))
   and (select true from matrixsched.semaphore_changes c where c.semaphore = s.key limit 1) is null
   and (select true from matrixsched.semaphore_tasks w
         where w.semaphore = s.key and w.state = 'waiting'
         order by w.priority desc, w.enqueued_at, w.task_id limit 1)
   and (select count(*) from (select from matrixsched.semaphore_tasks h
                               where h.semaphore = s.key and h.state <> 'waiting'
                               order by h.priority desc, h.enqueued_at, h.task_id
                               limit s.active) h) < s.active
on conflict do nothing
returning m.semaphore as subject, cast(null as text) as guid;

-- name: task_lease
with stranded as materialized (
    select t.ctid
      from matrixsched.queue_tasks t
     where t.id = any (cast(cast(:subjects as text[]) as bigint[]))
       and t.receipt is not null and t.due_at > {now} + cast(:task_reach as interval)
       /* pause point: mend_task_lease_lock */
       for update skip locked
)
update matrixsched.queue_tasks set due_at = {now} + cast(:task_reach as interval)
 where ctid = any (array(select ctid from stranded))
returning cast(id as text) as subject, cast(null as text) as guid;

-- name: task_twice
-- Only the very same task: where another one has its id, somebody has to decide.
with same as materialized (
    select d.ctid
      from matrixsched.queue_tasks t
     cross join lateral (select d.ctid
                           from matrixsched.queue_dead_letters d
                          where d.queue = t.queue and d.id = t.id and d.created_at = t.created_at and d.data = t.data
                            /* pause point: mend_task_twice_lock */
                            for update of d skip locked) d
     where t.id = any (cast(cast(:subjects as text[]) as bigint[]))
)
delete from matrixsched.queue_dead_letters where ctid = any (array(select ctid from same))
returning cast(id as text) as subject, cast(null as text) as guid;
