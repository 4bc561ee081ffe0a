-- templates (postgresql). Promise: the templates by name, or the one that is named, each with its maximum speed.
select t.*, l.requests, l.per_us
  from matrixsched.templates t
  left join matrixsched.limits l on l.name = 'template:' || t.name
 where cast(:template as text) is null or t.name = cast(:template as text)
 order by t.name;
