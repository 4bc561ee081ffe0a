-- remove_limit (postgresql). Promise: the limit is gone, with its slots and what it was told. Returns it if there was one.
delete from matrixsched.limits
 where name = cast(:limit_name as text)
returning name;
