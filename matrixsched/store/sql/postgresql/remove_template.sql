-- remove_template (postgresql). Promise: the template is gone, if none of its actions was live while it was locked.

-- name: lock
select name from matrixsched.templates where name = cast(:template as text) for update;

-- name: delete
delete from matrixsched.templates where name = cast(:template as text);
