-- prune_requests (postgresql). Promise: forgets requests so old that no twin of theirs can still arrive. Returns how many.
with old as materialized (
    select ctid from matrixsched.requests
     where created_at < {now} - cast(:keep as interval)
     order by created_at
     limit cast(:limit as integer)
       for update skip locked
),
gone as (
    delete from matrixsched.requests where ctid = any (array(select ctid from old)) returning 1
)
select count(*) as gone from gone;
