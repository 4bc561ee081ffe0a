-- existing_templates (postgresql). Promise: those of the names that are templates.
select t.name
  from unnest(cast(:names as text[])) as wanted (name)
  join matrixsched.templates t on t.name = wanted.name;
