-- count_template (postgresql). Promise: how many live actions are of a template, at most count_max of them.
select count(*) as live
  from (select true from matrixsched.scheduled_actions s
         where s.template = cast(:template as text) and s.state = 'live'
         order by s.shard_id, s.action_id -- as the index has them, lest all actions are read for the first few
         limit cast(:count_max as integer)) as counted;
