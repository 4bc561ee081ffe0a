-- count_template (postgresql). Promise: how many live actions are of a template, at most count_max of them.
select count(*) as live
  from (select from matrixsched.scheduled_actions s
         where s.template = cast(:template as text) and s.state = 'live'
         limit cast(:count_max as integer)) as counted;
