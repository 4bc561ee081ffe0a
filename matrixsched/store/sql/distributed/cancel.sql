-- cancel (distributed). Promise: a live action is finished as cancelled, once per request and unless it was called off; its
-- queue rows are dead from here on, so none of them starts again. The new guid is among the requests, too (carried_out): if
-- it is called off meanwhile, the statement fails as a whole. Waits for other writers of the action, at most lock_timeout.
with wanted as materialized (
    select true as wanted from matrixsched.scheduled_actions s
     where s.shard_id = cast(:shard_id as integer) and s.action_id = cast(:action_id as text)
       and s.state = 'live'
       and (cast(:expected_guid as uuid) is null or s.action_guid = cast(:expected_guid as uuid))
       /* pause point: cancel_lock */
       for no key update
),
request as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select cast(:shard_id as integer), cast(:request_guid as uuid), {now} from wanted
     where not exists (select from matrixsched.action_requests r
                        where r.shard_id = cast(:shard_id as integer) and r.request_guid = cast(:action_guid as uuid))
    on conflict do nothing
    returning request_guid
),
written as (
    update matrixsched.scheduled_actions s
       set action_guid = cast(:action_guid as uuid),
           version = greatest(s.version + 1, cast(extract(epoch from {now}) * 1000000 as bigint)),
           revision = s.revision + 1,
           state = 'cancelled', finished_at = {now}, updated_at = {now},
           interrupted = s.interrupted + coalesce(
               (select p.interrupted from matrixsched.processing_queue p
                 where p.shard_id = cast(:shard_id as integer) and p.action_id = s.action_id and p.action_guid = s.action_guid), 0)
     where s.shard_id = cast(:shard_id as integer) and s.action_id = cast(:action_id as text)
       and exists (select from request)
    returning s.action_id, s.action_guid
),
noted as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select cast(:shard_id as integer), w.action_guid, {now} from written w where w.action_guid <> cast(:request_guid as uuid)
)
select w.action_id, w.action_guid,
       exists (select from matrixsched.processing_queue p
                where p.shard_id = cast(:shard_id as integer) and p.action_id = w.action_id
                  and p.claimed_by is not null and p.scheduled_at > {now}) as running
  from written w;
