-- prune_requests (postgresql). Promise: forgets requests so old that no twin of theirs can still arrive. Returns how many.
with old as materialized (
    select ctid from matrixsched.requests
     where created_at < ({now} at time zone 'UTC' - cast(:keep as interval)) at time zone 'UTC' -- days of 24 hours
       /* pause point: prune_requests_lock */
     order by created_at
     limit cast(:limit as integer)
       for update skip locked
),
gone as (
    delete from matrixsched.requests where ctid = any (array(select ctid from old)) returning 1
)
select count(*) as gone from gone;
