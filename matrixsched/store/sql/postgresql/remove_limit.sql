-- remove_limit (postgresql). Promise: the limit is gone, with its slots and what it was told. Returns it if there was one. A
-- process that is frozen inside of this transaction holds up the others for no longer than a second.
with patience as materialized (
    select set_config('idle_in_transaction_session_timeout', '1000ms', true)
)
delete from matrixsched.limits
 where name = cast(:limit_name as text) and (select count(*) from patience) > 0
returning name;
