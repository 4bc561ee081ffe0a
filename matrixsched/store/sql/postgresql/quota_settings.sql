-- quota_settings (postgresql). Promise: how capacity is shared out; changed under a lock, so that no change is lost.

-- name: read
select settings from matrixsched.quota_settings;

-- name: lock
select settings from matrixsched.quota_settings for update;

-- name: write
update matrixsched.quota_settings set settings = cast(:settings as text), updated_at = {now};
