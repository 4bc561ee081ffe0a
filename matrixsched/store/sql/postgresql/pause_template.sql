-- pause_template (postgresql). Promise: nothing more of the template is claimed, and no window planned with a share for it,
-- until then. An end that lies in the past is refused: no row.
update matrixsched.templates
   set paused_at = {now}, paused_until = coalesce(cast(:until as timestamptz), {now} + cast(:delay as interval)),
       updated_at = {now}
 where name = cast(:template as text)
   and (cast(:until as timestamptz) is null or cast(:until as timestamptz) > {now})
returning name;
