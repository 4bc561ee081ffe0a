-- remove_limit (sqlite). Promise: the limit is gone, with its slots and what it was told. Returns it if there was one.
-- Differs from postgresql/remove_limit.sql: in its types alone.
delete from matrixsched_limits where name = :limit_name returning name;
