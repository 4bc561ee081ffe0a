"""How scenes are built in which something is wrong: as nothing leaves it behind that works."""

from __future__ import annotations

from support.interleaving import LEASE

from interleaver import building
from interleaver import building_gates as gates
from interleaver.move import HOUR, SECOND
from interleaver.stage import Setting
from matrixsched.rules.action import State

NOWHERE = 9
"""A shard that does not exist."""
QUEUED = """
insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select shard_id, $1, action_id, action_guid, scheduled_at, lane, expires_at from matrixsched.scheduled_actions
"""
REMEMBERED = """
insert into matrixsched.attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, claimed_by, started_at, ended_at)
select shard_id, action_id, action_guid, 99, 0, 'failed', action_guid, $1, $1 from matrixsched.scheduled_actions
"""

DEAD_TOO = """
insert into matrixsched.queue_dead_letters (queue, id, attempts, created_at, start_at, died_at, reason, data)
select queue, id, attempts, created_at, start_at, $1, 'no luck', data from matrixsched.queue_tasks where id = $2
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


async def misplaced(setting: Setting) -> None:
    """It waits in a shard that is not its own, whose workers run it."""
    await building.waiting(setting)
    await setting.sql(REMEMBERED, setting.now)


async def misplaced_new(setting: Setting) -> None:
    await building.new(setting)


async def misplaced_run(setting: Setting) -> None:
    """It is run there, and was replaced before."""
    await building.blocked(setting)


async def misplaced_lapsing(setting: Setting) -> None:
    await building.lapsing(setting)


async def misplaced_home(setting: Setting) -> None:
    """It waits in another shard, while those who look for it look here."""
    await building.write(setting, shard=1)
    await building.hold(setting, 1)
    await building.move_in(setting, claims=False, shard=1)
    await building.hold(setting)


async def misplaced_twice(setting: Setting) -> None:
    """It waits there, and was written in its own shard since."""
    await building.waiting(setting)
    setting.later(SECOND)
    await building.write(setting, shard=1)


async def no_lock(setting: Setting) -> None:
    """Somebody has a shard, whose lock is gone."""
    await building.new(setting)
    await setting.sql("delete from matrixsched.shard_locks where shard_id = 0")


async def extra_lock(setting: Setting) -> None:
    """A row is new in a shard that does not exist."""
    await building.write(setting, shard=NOWHERE)
    await setting.sql("delete from matrixsched.scheduled_actions")
    setting.facts.holders[NOWHERE] = guid = setting.guid()
    await setting.sql("insert into matrixsched.shard_locks (shard_id, last_lock_guid) values ($1, $2)", NOWHERE, guid)


async def lock_time(setting: Setting) -> None:
    """A free shard was served last tomorrow."""
    await building.free(setting)
    await setting.sql("update matrixsched.shard_locks set last_processing_start_at = $1", setting.now + 24 * HOUR)


async def lock_time_held(setting: Setting) -> None:
    await building.new(setting)
    await setting.sql("update matrixsched.shard_locks set last_processing_start_at = $1", setting.now + 24 * HOUR)


async def chores(setting: Setting) -> None:
    """Nobody plans or lists lanes any more, for the rows of these chores are gone."""
    await gates.unplanned(setting)
    await setting.sql("delete from matrixsched.chores")


async def no_quota(setting: Setting) -> None:
    """Nobody knows how capacity is shared out."""
    await gates.unplanned(setting)
    await setting.sql("delete from matrixsched.quota_settings")


async def unbalanced(setting: Setting) -> None:
    """A place is free, a task waits for it, and nothing says so."""
    await gates.place_free(setting)
    await setting.sql("delete from matrixsched.semaphore_changes")


async def task_lease(setting: Setting) -> None:
    """A task is taken for longer than anybody may ask for."""
    await gates.tasks(setting)
    setting.facts.wrong_task = setting.facts.taken_task().id
    late = "update matrixsched.queue_tasks set due_at = $1 where id = $2"
    await setting.sql(late, setting.now + 24 * HOUR, setting.facts.wrong_task)


async def task_twice(setting: Setting) -> None:
    """A task is ready, and a dead letter as well."""
    await gates.tasks(setting)
    find = "select id from matrixsched.queue_tasks where data = 'ready'"
    setting.facts.wrong_task = await setting.world.watcher.fetchval(find)
    await setting.sql(DEAD_TOO, setting.now, setting.facts.wrong_task)
