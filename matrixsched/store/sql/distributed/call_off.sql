-- call_off (distributed). Promise: as that of PostgreSQL, for a change of an action of this shard.
with closed as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    values (cast(:shard_id as integer), cast(:change_guid as uuid), {now})
    on conflict do nothing
    returning request_guid
),
marked as (
    insert into matrixsched.action_requests (shard_id, request_guid, created_at)
    select cast(:shard_id as integer), cast(:mark as uuid), {now} from closed
)
select count(*) as closed from closed;
