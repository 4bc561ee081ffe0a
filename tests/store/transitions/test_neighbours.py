"""A row is named by its shard, its action and its guid: what happens to one happens to none of its neighbours.

Shards follow from ids, and guids are drawn: a statement that forgets a part of the name is wrong in no other test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from support.scene import LEASE, Scene, done, failed

from matrixsched.rules.action import State, parked_lane
from matrixsched.store.values import SweepPosition

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
EARLIER, FIRST, SECOND_VERSION = (UUID(int=number, version=4) for number in range(3))
NEIGHBOURS = [(0, "b"), (1, "a")]
HIDDEN = parked_lane("other")
"""Where nobody looks."""

Life = Callable[[Scene], Awaitable[object]]


# What becomes of an action, and what was answered on the way.


async def fails_and_succeeds(scene: Scene) -> object:
    attempt = await scene.start(guid=FIRST)
    scene.clock.advance(SECOND)
    answers = [await scene.extend(attempt), *await scene.record(failed(attempt, delay=timedelta(0)))]
    (again,) = await scene.sync()
    return answers, await scene.finish(again)


async def is_interrupted(scene: Scene) -> object:
    again = await scene.interrupt(await scene.start(guid=FIRST))
    return again.interruptions, await scene.finish(again)


async def is_given_back(scene: Scene) -> object:
    return await scene.give_back(await scene.start(guid=FIRST))


async def is_replaced_while_it_runs(scene: Scene) -> object:
    attempt = await scene.start(guid=FIRST)
    replaced = await scene.schedule(guid=SECOND_VERSION)
    assert await scene.sync() == []
    answers = await scene.record(done(attempt))
    (again,) = await scene.sync()
    return replaced.running, answers, await scene.finish(again)


async def is_replaced_and_its_worker_gone(scene: Scene) -> object:
    await scene.start(guid=FIRST)
    scene.clock.advance(LEASE + TICK)
    replaced = await scene.schedule(guid=SECOND_VERSION)
    assert not replaced.running
    (again,) = await scene.sync()
    return await scene.finish(again)


async def waits_for_one_whose_worker_is_gone(scene: Scene) -> object:
    await scene.start(guid=FIRST)
    await scene.schedule(guid=SECOND_VERSION)
    assert await scene.sync() == []
    scene.clock.advance(LEASE + TICK)
    (again,) = await scene.sync()
    return await scene.finish(again)


async def is_replaced_while_it_waits(scene: Scene) -> object:
    await scene.schedule(guid=FIRST, delay=HOUR)
    assert await scene.sync() == []
    replaced = await scene.schedule(guid=SECOND_VERSION)
    assert not replaced.running
    (attempt,) = await scene.sync()
    return await scene.finish(attempt)


async def is_cancelled_while_it_runs(scene: Scene) -> object:
    attempt = await scene.start(guid=FIRST)
    cancelled = await scene.cancel(guid=SECOND_VERSION, expected_guid=FIRST)
    assert cancelled is not None
    return cancelled.running, await scene.record(done(attempt))


async def is_cancelled_while_it_waits(scene: Scene) -> object:
    await scene.schedule(guid=FIRST, delay=SECOND)
    assert await scene.sync() == []
    cancelled = await scene.cancel(guid=SECOND_VERSION)
    assert cancelled is not None
    assert not cancelled.running
    scene.clock.advance(SECOND)
    return await scene.sync()


async def is_moved(scene: Scene) -> object:
    await scene.schedule(guid=FIRST, delay=HOUR)
    assert await scene.sync() == []
    moved = await scene.reschedule(guid=SECOND_VERSION, at=scene.now, delay=timedelta(0))
    assert moved is not None
    assert not moved.running
    (attempt,) = await scene.sync()
    return await scene.finish(attempt)


async def is_replaced_as_it_was_read(scene: Scene) -> object:
    await scene.schedule(guid=FIRST, delay=HOUR)
    assert await scene.sync() == []
    new = scene.new(guid=SECOND_VERSION)
    replacing = scene.do.replace_expected(new, scene.guid(), expected_guid=FIRST, tell=False)
    replaced = await scene.run(replacing)
    assert replaced is not None
    assert not replaced.running
    (attempt,) = await scene.sync()
    return await scene.finish(attempt)


async def is_cancelled_and_swept(scene: Scene) -> object:
    await scene.schedule(guid=FIRST, delay=HOUR)
    assert await scene.sync() == []
    assert await scene.cancel(guid=SECOND_VERSION) is not None
    await scene.run(scene.do.sweep_dead(SweepPosition(), limit=100, reach=2 * HOUR))
    return None


async def is_pruned_with_its_history(scene: Scene) -> object:
    attempt = await scene.start(guid=FIRST)
    await scene.record(failed(attempt, delay=timedelta(0)))
    (again,) = await scene.sync()
    answer = await scene.finish(again)
    scene.clock.advance(SECOND)
    return answer, await scene.run(scene.do.prune_actions(State.DONE, keep=TICK, limit=100))


async def expires_while_it_waits(scene: Scene) -> object:
    await scene.schedule(guid=FIRST, delay=HOUR, expires_at=scene.now + SECOND)
    assert await scene.sync() == []
    scene.clock.advance(SECOND)
    return await scene.run(scene.do.expire_waiting(limit=100))


LIVES: list[Life] = [
    fails_and_succeeds,
    is_interrupted,
    is_given_back,
    is_replaced_while_it_runs,
    is_replaced_and_its_worker_gone,
    waits_for_one_whose_worker_is_gone,
    is_replaced_while_it_waits,
    is_cancelled_while_it_runs,
    is_cancelled_while_it_waits,
    is_moved,
    is_replaced_as_it_was_read,
    is_cancelled_and_swept,
    is_pruned_with_its_history,
    expires_while_it_waits,
]


# Who lives beside it: under the same guid, claimed for long, claimed until a moment ago, or waiting.


async def move_in(scene: Scene, shard: int, id: str, guid: UUID, *, claimed: bool, ends: timedelta) -> None:
    await scene.schedule(id, shard=shard, guid=guid, delay=HOUR)
    await scene.sql(
        "delete from matrixsched.incoming_queue where shard_id = :shard and action_id = :id", shard=shard, id=id
    )
    await scene.sql(
        """
        insert into matrixsched.processing_queue
               (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, claimed_by, claimed_at,
                added_at, moved_by, moved_at)
        values (:shard, :id, :guid, :lane, :ends_at, 3, 7, :claimed_by, :now, :now, :guid, :now)
        """,
        shard=shard,
        id=id,
        guid=guid,
        lane=HIDDEN,
        ends_at=scene.now + ends,
        claimed_by=scene.guid() if claimed else None,
        now=scene.now,
    )
    await scene.sql(
        """
        insert into matrixsched.attempt_history
               (shard_id, action_id, action_guid, attempt, tick, outcome, claimed_by, started_at, ended_at)
        values (:shard, :id, :guid, 1, 0, 'failed', :guid, :now, :now)
        """,
        shard=shard,
        id=id,
        guid=guid,
        now=scene.now,
    )


async def rows_of(scene: Scene, *keys: tuple[int, str]) -> dict[str, list[dict[str, Any]]]:
    tables = ("scheduled_actions", "incoming_queue", "processing_queue", "attempt_history")
    return {
        table: [row for row in await scene.table(table) if (row["shard_id"], row["action_id"]) in keys]
        for table in tables
    }


def without_guids(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Those of sync iterations are others every time."""
    return {
        table: [{name: value for name, value in row.items() if not name.endswith("_by")} for row in found]
        for table, found in rows.items()
    }


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__.replace("_", " "))
@pytest.mark.parametrize(("claimed", "ends"), [(True, HOUR), (True, -TICK), (False, HOUR)])
@pytest.mark.parametrize("guid", [FIRST, SECOND_VERSION], ids=["first", "second"])
async def test_what_happens_to_an_action_happens_to_none_of_its_neighbours(
    scene: Scene, life: Life, claimed: bool, ends: timedelta, guid: UUID
):
    begin = scene.now
    alone = (await life(scene), without_guids(await rows_of(scene, (0, "a"))))
    await scene.clear()
    scene.clock.time = begin
    for shard, id in NEIGHBOURS:
        await move_in(scene, shard, id, guid, claimed=claimed, ends=ends)
    before = await rows_of(scene, *NEIGHBOURS)
    assert (await life(scene), without_guids(await rows_of(scene, (0, "a")))) == alone
    assert await rows_of(scene, *NEIGHBOURS) == before


# What an earlier life under the same id left behind: a row that nobody has swept yet when the id is used again.


async def leave_behind(scene: Scene, guid: UUID, ends: timedelta) -> None:
    await move_in(scene, 0, "a", guid, claimed=False, ends=ends)
    await scene.sql("delete from matrixsched.scheduled_actions")
    await scene.sql("delete from matrixsched.attempt_history")


def of_version(rows: dict[str, list[dict[str, Any]]], guids: list[UUID]) -> dict[str, list[dict[str, Any]]]:
    return {table: [row for row in found if row["action_guid"] in guids] for table, found in rows.items()}


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__.replace("_", " "))
@pytest.mark.parametrize("ends", [HOUR, -TICK])
async def test_what_happens_to_an_action_happens_to_no_row_of_an_earlier_life(
    scene: Scene, life: Life, ends: timedelta
):
    """It is swept, or dropped by a move: until then it stays as it is, and nobody takes it for the action's."""
    begin = scene.now
    alone = (await life(scene), without_guids(await rows_of(scene, (0, "a"))))
    await scene.clear()
    scene.clock.time = begin
    await leave_behind(scene, EARLIER, ends)
    before = of_version(await rows_of(scene, (0, "a")), [EARLIER])
    answers, rows = await life(scene), await rows_of(scene, (0, "a"))
    assert (answers, without_guids(of_version(rows, [FIRST, SECOND_VERSION]))) == alone
    left = of_version(rows, [EARLIER])
    assert left in (before, dict.fromkeys(before, []))


async def test_a_lease_that_is_cut_leaves_the_next_version_its_time(scene: Scene):
    """The clock was set back: the lease of the attempt ends far too late, the version that follows it does not."""
    attempt = await scene.start()
    following = await scene.schedule(delay=HOUR)
    assert await scene.sync() == []
    before = await scene.row(guid=following.guid)
    scene.clock.time -= HOUR
    await scene.run(scene.do.sweep_dead(SweepPosition(), limit=100, reach=LEASE))
    assert (await scene.row(guid=attempt.claim.guid))["scheduled_at"] == scene.now + LEASE
    assert await scene.row(guid=following.guid) == before


BESIDE = [(0, "a", SECOND_VERSION), (0, "b", FIRST), (1, "a", FIRST)]


@pytest.mark.parametrize("claimed", [False, True], ids=["dead", "its lease is too long"])
@pytest.mark.parametrize("beside", BESIDE, ids=str)
async def test_a_sweep_touches_no_row_that_it_did_not_look_at(
    scene: Scene, beside: tuple[int, str, UUID], claimed: bool
):
    for shard, id, guid in ((0, "a", FIRST), beside):
        await move_in(scene, shard, id, guid, claimed=claimed, ends=3 * HOUR)
    await scene.sql("delete from matrixsched.scheduled_actions")
    before = (await scene.table("processing_queue"))[1]
    swept = await scene.run(scene.do.sweep_dead(SweepPosition(), limit=1, reach=HOUR))
    assert (swept.gone, swept.shortened) == ((0, 1) if claimed else (1, 0))
    assert before in await scene.table("processing_queue")


@pytest.mark.parametrize("beside", BESIDE, ids=str)
async def test_no_more_rows_expire_than_were_looked_at(scene: Scene, beside: tuple[int, str, UUID]):
    for (shard, id, guid), late in (((0, "a", FIRST), 2 * TICK), (beside, TICK)):
        await move_in(scene, shard, id, guid, claimed=False, ends=HOUR)
        await scene.sql(
            "update matrixsched.processing_queue set expires_at = :at where expires_at is null", at=scene.now - late
        )
    await scene.sql("delete from matrixsched.scheduled_actions")
    swept = await scene.run(scene.do.expire_waiting(limit=1))
    assert (swept.late, swept.gone) == (1, 1)
    (left,) = await scene.table("processing_queue")
    assert (left["shard_id"], left["action_id"], left["action_guid"]) == beside
