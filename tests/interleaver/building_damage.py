"""How scenes are built in which something is wrong: as nothing leaves it behind that works."""

from __future__ import annotations

from support.interleaving import LEASE

from interleaver import building
from interleaver.move import HOUR, SECOND
from interleaver.stage import Setting
from matrixsched.rules.action import State

QUEUED = """
insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select shard_id, $1, action_id, action_guid, scheduled_at, lane, expires_at from matrixsched.scheduled_actions
"""
REMEMBERED = """
insert into matrixsched.attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, claimed_by, started_at, ended_at)
select shard_id, action_id, action_guid, 99, 0, 'failed', action_guid, $1, $1 from matrixsched.scheduled_actions
"""


async def lost(setting: Setting) -> None:
    """It is live, and no row stands for it."""
    await building.new(setting)
    await setting.sql("delete from matrixsched.incoming_queue")


async def twice(setting: Setting) -> None:
    """It waits, and is new once more."""
    await building.waiting(setting)
    await setting.sql(QUEUED, setting.now + SECOND)


async def twice_new(setting: Setting) -> None:
    await building.new(setting)
    await setting.sql(QUEUED, setting.now + SECOND)


async def early(setting: Setting) -> None:
    """It waits for a later hour, and its row is due now."""
    await building.write(setting, at=setting.now + HOUR)
    await building.hold(setting)
    await building.move_in(setting, claims=False)
    await setting.sql("update matrixsched.processing_queue set scheduled_at = $1", setting.now)


async def early_new(setting: Setting) -> None:
    await building.write(setting, at=setting.now + HOUR)
    await building.hold(setting)
    await setting.sql("update matrixsched.incoming_queue set scheduled_at = $1", setting.now)


async def astray(setting: Setting) -> None:
    """It waits in a lane that nobody reads."""
    await building.waiting(setting)
    await setting.sql("update matrixsched.processing_queue set lane = 'nowhere'")


async def stranded(setting: Setting) -> None:
    """It is run, under a lease that is longer than any."""
    await building.claimed(setting)
    await setting.sql("update matrixsched.processing_queue set scheduled_at = $1", setting.now + 9 * LEASE)


async def miscounted(setting: Setting) -> None:
    """It is run, and has failed more often than it has counted."""
    await building.claimed(setting)
    await setting.sql(REMEMBERED, setting.now)


async def forgotten(setting: Setting) -> None:
    """It has failed and is gone, and its history is there."""
    await building.finished(setting)
    await setting.sql(REMEMBERED, setting.now)
    await setting.sql("delete from matrixsched.scheduled_actions")
    setting.facts.pruned = State.DONE
