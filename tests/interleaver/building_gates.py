"""How scenes are built: gates, semaphores and queues."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from typing import Any

from support.interleaving import HANDLER, LEASE

from interleaver.building import hold, move_in, write
from interleaver.move import HOLD, HOUR, OTHER_POOL, POOL, QUEUE, SECOND
from interleaver.stage import Setting
from matrixsched.rules.lanes import Lane
from matrixsched.rules.queues import NewItem
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.semaphore import Semaphore
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.queues import Letter
from matrixsched.store.semaphores import NewTask

MINUTE = timedelta(minutes=1)
MX = Lane(handler=HANDLER, key="mx")
PROMO = Lane(handler=HANDLER, template="promo")

# Gates.


Ids = tuple[tuple[str, ...], ...]
"""Of the rows in each shard."""


async def before_gates(setting: Setting, lane: Lane, ids: Ids = (("a", "b"), ("c", "d"))) -> None:
    """Two rows in each of two shards; `a` is the first. No two are due at the same instant: one is always the first."""
    setting.facts.lanes += (lane.name,)
    instants = count()
    for shard, of_shard in enumerate(ids):
        await hold(setting, shard)
        for id in of_shard:
            at = setting.now - SECOND + next(instants) * timedelta.resolution
            await write(setting, id=id, shard=shard, lane=lane.name, template=lane.template, at=at)
        await move_in(setting, claims=False, shard=shard)
    await setting.sql(
        "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) values ($1, 0, $2, $3)",
        lane.name,
        HANDLER,
        setting.now,
    )


async def one_slot(setting: Setting) -> None:
    await setting.world.run(setting.world.do.set_limit("key:mx", parse_rate("1/s"), pool=0))
    await setting.sql("update matrixsched.limits set next_slot_ns = 0")
    setting.facts.tokens = 1


async def one_token(setting: Setting) -> None:
    await one_slot(setting)
    await before_gates(setting, MX)


async def templates(setting: Setting) -> None:
    for name in ("promo", "news"):
        await setting.world.run(setting.world.do.put_template(name, TemplateChange()))


async def unplanned(setting: Setting) -> None:
    """Messages of a template wait; the window before had grants, too, and this one is not planned."""
    await templates(setting)
    await before_gates(setting, PROMO)
    await window(setting, begins_at=setting.now - MINUTE)


async def unsettled(setting: Setting) -> None:
    """As `unplanned`, and one more message is not before its gate yet."""
    await unplanned(setting)
    await write(setting, id="e", lane=PROMO.name, template=PROMO.template, at=setting.now - SECOND)


async def window(setting: Setting, begins_at: datetime) -> None:
    """With one grant for those who wait, and others that are none of their business."""
    await setting.sql(
        "insert into matrixsched.quota_windows (begins_at, ends_at, planned_at, planned_by, templates) "
        "values ($1, $2, $1, 'w', 1)",
        begins_at,
        begins_at + MINUTE,
    )
    for template, priority, inside in (
        ("promo", 0, False),
        ("promo", 0, True),
        ("promo", 5, False),
        ("news", 0, False),
    ):
        await setting.sql(
            "insert into matrixsched.quota_grants (begins_at, template, priority, inside, zones, waiting, granted) "
            "values ($1, $2, $3, $4, '[]', 4, 1)",
            begins_at,
            template,
            priority,
            inside,
        )


async def one_grant(setting: Setting) -> None:
    await unplanned(setting)
    await window(setting, begins_at=setting.now)
    setting.facts.tokens = 1


async def sent(setting: Setting) -> None:
    """The window is over, and the next one not planned. A message was sent in it by somebody not heard of since;
    another one was replaced, and its next version is not before its gate yet. Nobody beats for shard 1."""
    await one_grant(setting)
    setting.facts.tokens = 0
    passed = await setting.world.run(
        setting.world.do.claim_gated(
            0,
            setting.facts.holders[0],
            listed=setting.facts.lanes,
            filled=(),
            room=9,
            suspect_room=1,
            attempt_lease=LEASE,
            ahead=timedelta(0),
        )
    )
    (setting.facts.attempt,) = passed.attempts
    setting.later(MINUTE)
    await hold(setting)
    await write(setting, id="b", lane=PROMO.name, template=PROMO.template, at=setting.now - SECOND)


async def window_ending(setting: Setting) -> None:
    """The window with the grant ends in a microsecond."""
    await one_grant(setting)
    setting.later(MINUTE - timedelta.resolution)
    await hold(setting)
    await hold(setting, 1)


# The semaphore.


async def pool(setting: Setting, *, held: bool, **options: Any) -> None:
    """Its place is free or held by `x`; who holds one of another semaphore, too."""
    do = setting.world.do
    await setting.world.run(do.make_semaphore(Semaphore(key=OTHER_POOL, active=1, try_release=0, hold_for=HOUR)))
    await setting.world.run(
        do.enqueue_tasks(
            OTHER_POOL, [NewTask("x", 1.0, setting.guid())], setting.guid(), change_guid=setting.guid(), tell=False
        )
    )
    await setting.world.run(do.balance(OTHER_POOL, setting.guid, shards=1))
    await setting.world.run(do.make_semaphore(Semaphore(key=POOL, active=1, try_release=1, **options)))
    tasks = [NewTask(id, priority, setting.guid()) for id, priority in (("x", 1.0), ("y", 2.0), ("z", 1.5))]
    for task in tasks if not held else tasks[:1]:
        await setting.world.run(do.enqueue_tasks(POOL, [task], setting.guid(), change_guid=setting.guid(), tell=False))
    if held:
        await setting.world.run(do.balance(POOL, setting.guid, shards=1))
        for task in tasks[1:]:
            await setting.world.run(
                do.enqueue_tasks(POOL, [task], setting.guid(), change_guid=setting.guid(), tell=False)
            )


async def place_free(setting: Setting) -> None:
    await pool(setting, held=False)


async def place_held(setting: Setting) -> None:
    """By the least important task, whom nobody has asked for it yet."""
    await pool(setting, held=True)


async def place_asked(setting: Setting) -> None:
    await pool(setting, held=True)
    await setting.world.run(setting.world.do.balance(POOL, setting.guid, shards=1))


async def place_late(setting: Setting) -> None:
    """Whoever holds it did not renew it."""
    await pool(setting, held=True, hold_for=LEASE)
    setting.later(LEASE + SECOND)


# Queues.


async def tasks(setting: Setting) -> None:
    """One each: ready, taken, lapsed, delayed, dead."""
    do, run = setting.world.do, setting.world.run
    await setting.sql("alter sequence matrixsched.queue_tasks_id_seq restart")
    await run(do.change_queue_settings(QUEUE, lambda one: one))

    async def put(data: str, **options: Any) -> None:
        await run(do.put_tasks([NewItem(queue=QUEUE, data=data.encode(), **options)], setting.guid(), tell=False))

    await put("dead")
    (doomed,) = await run(do.take_tasks(QUEUE, 9, setting.guid(), visibility=HOLD))
    await run(do.set_aside_tasks([Letter(doomed.receipt, "no use")], setting.guid()))
    await put("lapsed")
    (setting.facts.lapsed,) = await run(do.take_tasks(QUEUE, 9, setting.guid(), visibility=HOLD))
    setting.later(HOLD)
    await put("taken", at=setting.now - HOUR)
    (setting.facts.taken,) = await run(do.take_tasks(QUEUE, 1, setting.guid(), visibility=HOLD))
    await put("ready")
    await put("delayed", delay=HOUR)


async def taken_lapsing(setting: Setting) -> None:
    """A task is taken for another microsecond."""
    do, run = setting.world.do, setting.world.run
    await run(do.put_tasks([NewItem(queue=QUEUE, data=b"taken")], setting.guid(), tell=False))
    (setting.facts.taken,) = await run(do.take_tasks(QUEUE, 9, setting.guid(), visibility=HOLD))
    setting.later(HOLD - timedelta.resolution)
