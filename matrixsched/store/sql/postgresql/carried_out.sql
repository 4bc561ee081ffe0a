-- carried_out (postgresql). Promise: whether a request took effect, for whoever sends it again because no answer came: then
-- its change guid is among the requests, too. A statement of its own: the one that was sent again does not see what has been
-- committed since it began.
select exists (select from matrixsched.requests where request_guid = cast(:change_guid as uuid)) as carried_out;
