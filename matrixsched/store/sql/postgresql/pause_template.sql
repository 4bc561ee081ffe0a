-- pause_template (postgresql). Promise: no window that is planned from here on has a share for the template, and what
-- it has left in the present one is taken back. An end that lies in the past is refused: no row.

-- name: pause
update matrixsched.templates
   set paused_at = {now}, paused_until = coalesce(cast(:until as timestamptz), {now} + cast(:delay as interval)),
       updated_at = {now}
 where name = cast(:template as text)
   and (cast(:until as timestamptz) is null or cast(:until as timestamptz) > {now})
returning name;

-- name: withdraw
update matrixsched.quota_grants
   set granted = used
 where begins_at = (select max(begins_at) from matrixsched.quota_windows)
   and template = cast(:template as text) and granted > used;
