-- open_gates (postgresql). Promise: workers look again at once at every lane that waits for a gate, because one may have
-- opened; and workers that know no gates start no more.

-- name: lanes
with waiting as materialized (
    select lane from matrixsched.held_lanes where ready_at > {now} order by lane for update
)
update matrixsched.held_lanes h set ready_at = {now} from waiting w where h.lane = w.lane;

-- name: libraries
update matrixsched.installation set oldest_library = 3 where oldest_library < 3;
