-- pause_template (sqlite). Promise: no window that is planned from here on has a share for the template, and what it
-- has left in the present one is taken back. An end that lies in the past is refused: no row.
-- Differs from postgresql/pause_template.sql: the end is computed by the caller.

-- name: pause
update matrixsched_templates
   set paused_at = {now}, paused_until = :until, updated_at = {now}
 where name = :template and (:until is null or :until > {now})
returning name;

-- name: withdraw
update matrixsched_quota_grants
   set granted = used
 where begins_at = (select max(begins_at) from matrixsched_quota_windows)
   and template = :template and granted > used;
