-- templates (sqlite). Promise: the templates by name, or the one that is named, each with its maximum speed.
-- Differs from postgresql/templates.sql: nothing but the names of the tables.
select t.*, l.requests, l.per_us
  from matrixsched_templates t
  left join matrixsched_limits l on l.name = 'template:' || t.name
 where :template is null or t.name = :template
 order by t.name;
