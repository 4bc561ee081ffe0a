-- existing_templates (sqlite). Promise: those of the names that are templates.
-- Differs from postgresql/existing_templates.sql: json_each instead of unnest.
select t.name
  from json_each(:names) as wanted
  join matrixsched_templates t on t.name = wanted.value;
