-- count_template (sqlite). Promise: how many live actions are of a template, at most count_max of them.
-- Differs from postgresql/count_template.sql: a sub-select needs a column.
select count(*) as live
  from (select 1 from matrixsched_scheduled_actions s
         where s.template = :template and s.state = 'live'
         limit :count_max) as counted;
