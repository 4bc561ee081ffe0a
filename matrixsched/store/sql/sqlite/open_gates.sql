-- open_gates (sqlite). Promise: workers look again at once at every lane that waits for a gate, because one may have
-- opened; and workers that know no gates start no more.
-- Differs from postgresql/open_gates.sql: there is only one writer, so no order of locks.

-- name: lanes
update matrixsched_held_lanes set ready_at = {now} where ready_at > {now};

-- name: libraries
update matrixsched_installation set oldest_library = 3 where oldest_library < 3;
