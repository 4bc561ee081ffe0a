-- resume_template (sqlite). Promise: the template is not paused.
-- Differs from postgresql/resume_template.sql: nothing but the name of the table.
update matrixsched_templates set paused_at = null, paused_until = null, updated_at = {now}
 where name = :template
returning name;
