-- quota_settings (sqlite). Promise: how capacity is shared out; read and changed in one transaction.
-- Differs from postgresql/quota_settings.sql: there is only one writer, so nothing to lock.

-- name: read
select settings from matrixsched_quota_settings;

-- name: write
update matrixsched_quota_settings set settings = :settings, updated_at = {now};
