-- carried_out (postgresql). Promise: which of these requests took effect, for whoever sent one again because no answer came.
-- Asked by the guid of the change where a request is kept also if it changed nothing, or others may have sent the same: then
-- that guid is among the requests, too. A statement of its own: the one that was sent again does not see what has been
-- committed since it began.
select request_guid from matrixsched.requests where request_guid = any (cast(:guids as uuid[]));
