-- resume_template (postgresql). Promise: the template is not paused.
update matrixsched.templates set paused_at = null, paused_until = null, updated_at = {now}
 where name = cast(:template as text)
returning name;
