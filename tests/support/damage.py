"""Damage done to an installation behind the store's back: of each kind, to an action of the kind's own name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.rules.faults import Fault
from matrixsched.rules.names import shard_of
from matrixsched.worker import Worker
from support.scene import SHARDS, Scene

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HANDLER = "send"
NOWHERE = 99
"""A shard that does not exist."""
QUEUED = """
insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane, expires_at)
select shard_id, {since}, action_id, action_guid, scheduled_at, lane, expires_at
  from matrixsched.scheduled_actions where action_id = :id
"""
FOREIGN = """
insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane)
values (:shard, :now, :id, :guid, :now, '')
"""
REMEMBERED = """
insert into matrixsched.attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, claimed_by, started_at, ended_at)
values (:shard, :id, coalesce((select action_guid from matrixsched.scheduled_actions where action_id = :id), :guid),
        :attempt, 0, :outcome, :guid, :now, :now)
"""
TASK = """
insert into matrixsched.queue_tasks (id, queue, attempts, created_at, start_at, due_at, receipt, data)
values (:number, 1, 0, :now, :now, :due, :guid, :data)
"""
DEAD_LETTER = """
insert into matrixsched.queue_dead_letters (queue, id, attempts, created_at, start_at, died_at, reason, data)
values (1, :number, 0, :now, :now, :now, 'no luck', :data)
"""
SEMAPHORE_TASK = """
insert into matrixsched.semaphore_tasks (semaphore, task_id, priority, state, guid, enqueued_at)
values ('semaphore', 't', 0, 'waiting', :guid, :now)
"""


class Site:
    """An installation with an action for each kind of damage, due in an hour and moved."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self.scene = Scene(app.store, clock)

    async def build(self) -> None:
        self.app.action(HANDLER)(lambda: None)
        await self.app.templates.set("template")
        for fault in Fault:
            template = "template" if fault is Fault.TEMPLATE else None
            await self.app.schedule(HANDLER, id=fault.value, delay=HOUR, template=template)
        await Worker(self.app).run_due()

    async def sql(self, text: str, **parameters: Any) -> None:
        await self.scene.sql(text, **parameters)

    async def change_row(self, id: str, change: str, **parameters: Any) -> None:
        await self.sql(f"update matrixsched.processing_queue set {change} where action_id = :id", id=id, **parameters)

    async def put_foreign_row(self, id: str, shard: int) -> None:
        await self.sql(FOREIGN, id=id, shard=shard, guid=self.scene.guid(), now=self.clock.now())

    async def remember(self, id: str, attempt: int, outcome: str) -> None:
        guid, now = self.scene.guid(), self.clock.now()
        shard = shard_of(id, SHARDS)
        await self.sql(REMEMBERED, id=id, shard=shard, attempt=attempt, outcome=outcome, guid=guid, now=now)


Damage = Callable[[Site], Awaitable[None]]


async def no_lock(site: Site) -> None:
    await site.sql("delete from matrixsched.shard_locks where shard_id = 3")


async def extra_lock(site: Site) -> None:
    insert = "insert into matrixsched.shard_locks (shard_id, last_lock_guid) values (:shard, :guid)"
    await site.sql(insert, shard=NOWHERE, guid=site.scene.guid())


async def lock_time(site: Site) -> None:
    change = "update matrixsched.shard_locks set last_processing_start_at = :later where shard_id = 0"
    await site.sql(change, later=site.clock.now() + DAY)


async def chore(site: Site) -> None:
    await site.sql("delete from matrixsched.chores where name = 'tidy'")


async def quota(site: Site) -> None:
    await site.sql("delete from matrixsched.quota_settings")


async def unbalanced(site: Site) -> None:
    pool = await site.app.semaphores.get_or_create("pool", active=2)
    await pool.enqueue_many({f"task{number}": number for number in range(3)})
    await site.sql("delete from matrixsched.semaphore_changes")


async def unbalanced_again(site: Site) -> None:
    """One of two places is held."""
    await unbalanced(site)
    await site.sql(
        "update matrixsched.semaphore_tasks set state = 'acquired', acquired_at = :now where task_id = 'task0'",
        now=site.clock.now(),
    )


async def template(site: Site) -> None:
    await site.sql("delete from matrixsched.templates")


async def semaphore(site: Site) -> None:
    await site.sql(SEMAPHORE_TASK, guid=site.scene.guid(), now=site.clock.now())


async def task_lease(site: Site) -> None:
    now = site.clock.now()
    await site.sql(TASK, number=1, now=now, due=now + DAY, guid=site.scene.guid(), data=b"x")


async def task_twice(site: Site) -> None:
    now = site.clock.now()
    await site.sql(TASK, number=2, now=now, due=now, guid=site.scene.guid(), data=b"x")
    await site.sql(DEAD_LETTER, number=2, now=now, data=b"x")


async def misplaced(site: Site) -> None:
    await site.remember("misplaced", 1, "failed")
    await site.sql("update matrixsched.scheduled_actions set failed = 1 where action_id = 'misplaced'")
    for table in ("scheduled_actions", "processing_queue", "attempt_history"):
        change = f"update matrixsched.{table} set shard_id = :wrong where action_id = 'misplaced'"
        await site.sql(change, wrong=(shard_of("misplaced", SHARDS) + 1) % SHARDS)


async def misplaced_nowhere(site: Site) -> None:
    for table in ("scheduled_actions", "processing_queue"):
        await site.sql(f"update matrixsched.{table} set shard_id = :no where action_id = 'misplaced'", no=NOWHERE)


async def lost(site: Site) -> None:
    await site.sql("delete from matrixsched.processing_queue where action_id = 'lost'")


async def twice(site: Site) -> None:
    await site.sql(QUEUED.format(since="created_at"), id="twice")


async def twice_in_incoming(site: Site) -> None:
    for since in ("created_at", "scheduled_at"):
        await site.sql(QUEUED.format(since=since), id="twice")
    await site.sql("delete from matrixsched.processing_queue where action_id = 'twice'")


async def late(site: Site) -> None:
    await site.change_row("time", "scheduled_at = :later", later=site.clock.now() + 30 * DAY)


async def early(site: Site) -> None:
    await site.change_row("time", "scheduled_at = :now", now=site.clock.now())


async def early_again(site: Site) -> None:
    """As one that repeats: attempts are never counted anew."""
    await site.change_row("time", "scheduled_at = :now, attempt = 3", now=site.clock.now())


async def expires_early(site: Site) -> None:
    await site.change_row("time", "expires_at = :soon", soon=site.clock.now() + HOUR / 2)


async def early_in_incoming(site: Site) -> None:
    await site.sql(QUEUED.format(since="created_at"), id="time")
    await site.sql("delete from matrixsched.processing_queue where action_id = 'time'")
    await site.sql("update matrixsched.incoming_queue set scheduled_at = :now", now=site.clock.now())


async def lane(site: Site) -> None:
    await site.change_row("lane", "lane = 'nowhere'")


async def parked_for_another(site: Site) -> None:
    await site.change_row("lane", "lane = 'handler:other'")


async def before_another_gate(site: Site) -> None:
    await site.change_row("lane", "lane = 'limit|0||other'")


async def lease(site: Site) -> None:
    claim = "claimed_by = :guid, claimed_at = :now, attempt = 1, scheduled_at = :later"
    now = site.clock.now()
    await site.change_row("lease", claim, guid=site.scene.guid(), now=now, later=now + DAY)


async def counters(site: Site) -> None:
    for attempt, outcome in enumerate(("failed", "timed_out", "interrupted"), start=1):
        await site.remember("counters", attempt, outcome)


async def failures_in_a_row(site: Site) -> None:
    await site.sql("update matrixsched.scheduled_actions set consecutive_failures = 2 where action_id = 'counters'")


async def stray(site: Site) -> None:
    await site.put_foreign_row("stray", NOWHERE)


async def dead(site: Site) -> None:
    await site.put_foreign_row("dead", shard_of("dead", SHARDS))


async def orphan(site: Site) -> None:
    await site.sql("delete from matrixsched.scheduled_actions where action_id = 'orphan'")


async def finished(site: Site) -> None:
    change = "update matrixsched.scheduled_actions set state = 'done', finished_at = :now where action_id = 'finished'"
    await site.sql(change, now=site.clock.now())


async def forgotten(site: Site) -> None:
    await site.remember("nobody", 1, "failed")


UNMENDABLE: dict[Fault, list[Damage]] = {Fault.TEMPLATE: [template], Fault.SEMAPHORE: [semaphore]}
"""Somebody has to decide."""
LITTER: dict[Fault, list[Damage]] = {
    Fault.DEAD: [dead],
    Fault.ORPHAN: [orphan],
    Fault.FINISHED: [finished],
    Fault.FORGOTTEN: [forgotten],
}
MENDABLE: dict[Fault, list[Damage]] = {
    Fault.NO_LOCK: [no_lock],
    Fault.EXTRA_LOCK: [extra_lock],
    Fault.LOCK_TIME: [lock_time],
    Fault.CHORE: [chore],
    Fault.QUOTA: [quota],
    Fault.UNBALANCED: [unbalanced, unbalanced_again],
    Fault.TASK_LEASE: [task_lease],
    Fault.TASK_TWICE: [task_twice],
    Fault.MISPLACED: [misplaced, misplaced_nowhere],
    Fault.LOST: [lost],
    Fault.TWICE: [twice, twice_in_incoming],
    Fault.TIME: [late, early, early_again, expires_early, early_in_incoming],
    Fault.LANE: [lane, parked_for_another, before_another_gate],
    Fault.LEASE: [lease],
    Fault.COUNTERS: [counters, failures_in_a_row],
    Fault.STRAY: [stray],
}
