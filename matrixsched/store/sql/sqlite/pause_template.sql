-- pause_template (sqlite). Promise: nothing more of the template is claimed, and no window planned with a share for it,
-- until then. An end that lies in the past is refused: no row.
-- Differs from postgresql/pause_template.sql: the end is computed by the caller.
update matrixsched_templates
   set paused_at = {now}, paused_until = :until, updated_at = {now}
 where name = :template and (:until is null or :until > {now})
returning name;
