"""What the model of a fleet stands on: each number with where it comes from, or why it was chosen.

What says `read` is in the source: the tests compare it. What was measured was measured on two cores beside other work,
with PostgreSQL 18, by `./tools/dev capacity --measure`, unless it says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Basis = Literal["measured", "read", "assumed"]


@dataclass(frozen=True, slots=True)
class Known:
    value: float
    unit: str
    basis: Basis
    why: str


# What statements cost the server. A faster machine needs less; ratios stay.

LOOK_US: Final = Known(
    350, "µs", "measured", "processor time of `acquire_shard` beside what its shards cost; 250 to 520"
)
LOOK_SHARD_US: Final = Known(
    5, "µs", "measured", "…for each shard of the installation; 2.5 where it is empty, 6 with future rows in it"
)
NOTICE_US: Final = Known(30, "µs", "measured", "a notification, for each session that listens; 26 to 40, one by one")
RUN_US: Final = Known(40, "µs", "measured", "all that the server does for an action, in batches: docs/performance.md")
WORKER_US: Final = Known(24, "µs", "measured", "processor time of a worker for an action: docs/performance.md")
SCHEDULE_US: Final = Known(11, "µs", "measured", "the server's part of `schedule_many`: docs/performance.md")
PRUNE_ROW_US: Final = Known(2.5, "µs", "measured", "a row that `prune_actions` deletes, in batches of 500")
TRIP_S: Final = Known(0.0005, "s", "assumed", "to the database and back within one data centre")
FLUSH_S: Final = Known(
    0.001, "s", "assumed", "a commit that waits for the disk and a standby, with others in one flush"
)
KNOWN_WITHIN: Final = Known(0.25, "of a trip", "assumed", "how well a worker knows the database's time")

# What an action leaves behind.

ACTION_BYTES: Final = Known(
    487, "B", "measured", "a row of `scheduled_actions` with its indexes, payload 100 characters"
)
QUEUE_BYTES: Final = Known(265, "B", "measured", "a row of `processing_queue` with its indexes")
INCOMING_BYTES: Final = Known(240, "B", "measured", "a row of `incoming_queue` with its index")
WAL_BYTES: Final = Known(
    2613, "B", "measured", "WAL of an action from the call to the outcome, without images of pages"
)
DEAD_ACTIONS: Final = Known(1, "rows", "measured", "that an action leaves in `scheduled_actions`; none of them is HOT")
DEAD_PRUNED: Final = Known(1, "rows", "read", "…and one more when it is pruned, beside others that are as old")
DEAD_QUEUE: Final = Known(2, "rows", "measured", "…in `processing_queue`: its claim and its end")
DEAD_INCOMING: Final = Known(1, "rows", "measured", "…in `incoming_queue`")
PAGES_TOUCHED: Final = Known(
    5, "pages", "assumed", "in random places for an action: two heaps, two primary keys, the new version of a row"
)
INDEX_SHARE: Final = Known(0.4, "of a table", "assumed", "that its indexes are; a vacuum reads all of them")

# What a worker does, whatever it has to do.

LANE_JITTER_S: Final = Known(0.0005, "s", "read", "half of WAKE_JITTER_S: how much later than due a worker looks")
OVERDUE_REST_S: Final = Known(
    0.01, "s", "read", "CONTENDED_REST_S: the first rest of who came too late; doubled each time"
)
VAIN_SHARE: Final = Known(
    0.3,
    "of a core",
    "read",
    "restraint.VAIN_SHARE: what all workers take together for looks in vain, two in a row each",
)
HOLD_MAX_S: Final = Known(1, "s", "read", "restraint.HOLD_MAX_S: …but nobody holds back for longer")
REPORT_EVERY_S: Final = Known(30, "s", "read", "reporting.REPORT_EVERY_S")
REPORT_STATEMENTS: Final = Known(
    3, "statements", "read", "of a report: the backlog, this minute, every other time the last"
)
TIDY_STATEMENTS: Final = Known(12, "statements", "read", "of a turn of tidying, beside taking the chore")
TIDY_EVERY_S: Final = Known(30, "s", "read", "WorkerPolicy.tidy_every")
TIDY_SHARE: Final = Known(0.5, "of the time", "read", "at most so much of it is spent on tidying, by one worker of all")
VISIT_STATEMENTS: Final = Known(
    2, "statements", "read", "after the look: move or claim, release; the record is not waited for"
)
VISIT_XIDS: Final = Known(4, "xids", "read", "acquire, move or claim, release, record")
POOL_CONNECTIONS: Final = Known(8, "connections", "read", "CONNECTIONS_DEFAULT: at most, opened as they are needed")
LEASE_CONNECTIONS: Final = Known(
    2, "connections", "read", "the thread that prolongs leases: one for attempts, one for batches"
)
USED_CONNECTIONS: Final = Known(5, "connections", "measured", "what a process that works uses: docs/performance.md")

# PostgreSQL, as it comes.

PAGE_BYTES: Final = Known(8192, "B", "read", "PostgreSQL's block size")
VACUUM_NAP_S: Final = Known(60, "s", "assumed", "autovacuum_naptime")
VACUUM_DELAY_S: Final = Known(0.002, "s", "assumed", "autovacuum_vacuum_cost_delay, where a table says nothing else")
VACUUM_DIRTY_COST: Final = Known(20, "points", "assumed", "vacuum_cost_page_dirty")
VACUUM_BYTES_S: Final = Known(400e6, "B/s", "assumed", "what one vacuum reads and writes when nothing holds it back")
XIDS_MAX: Final = Known(2**31, "xids", "assumed", "PostgreSQL stops before so many are in use")
FREEZE_AGE: Final = Known(200e6, "xids", "assumed", "autovacuum_freeze_max_age: from then on a vacuum is forced")
