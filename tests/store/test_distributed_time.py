"""A statement of the distributed form that is long on its way: it bears a time that is over, and takes, claims and
prolongs nothing by it. By the real clock: only so is the time asked, and is it judged whether it is too late.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from support.distributed import a_store, held
from support.scene import HANDLER, LEASE, Scene, done

from matrixsched.clock import ManualClock
from matrixsched.rules.action import Claim
from matrixsched.store.postgresql.distributed.timing import timed
from matrixsched.store.postgresql.distributed.transitions import DistributedTransitions
from matrixsched.store.transition import Conversation, Row, Transition
from matrixsched.store.values import Answer, Extension, Holding, Taking, TidyPosition

pytestmark = pytest.mark.anyio

T = TypeVar("T")

SHARD = 1
SECOND = timedelta(seconds=1)
TOO_LATE = LEASE / 3 + SECOND
HOUR = timedelta(hours=1)


@pytest.fixture
async def scene(postgres_dsn: str, anyio_backend: str) -> AsyncIterator[Scene]:
    """Its clock is not the store's, which asks the database."""
    async with a_store(postgres_dsn, None) as store:
        yield Scene(store, ManualClock())


def late(transition: Transition[T], by: timedelta) -> Transition[T]:
    """As it arrives when so long has passed between the answer to what the time is and the next statement."""

    def conversation() -> Conversation[T]:
        asked = transition.begin()
        rows: Any = None
        try:
            while True:
                ask = asked.send(rows)
                rows = yield ask
                if ask.statement.name == "now":
                    rows = [{**rows[0], "now": rows[0]["now"] - by}]
        except StopIteration as end:
            answer: T = end.value
            return answer

    return replace(transition, begin=conversation)


async def database_time(scene: Scene) -> datetime:
    return await scene.run(scene.do.now())


def moving(scene: Scene, guid: UUID, taking: Taking | None) -> Transition[Any]:
    return scene.do.move(
        SHARD, guid, handlers=[HANDLER], move_limit=9, claim_limit=9, attempt_lease=LEASE, taking=taking
    )


# Shards.


async def lock(scene: Scene) -> dict[str, Any]:
    (found,) = [row for row in await scene.table("shard_locks") if row["shard_id"] == SHARD]
    return found


async def test_who_comes_late_robs_no_live_holder(scene: Scene):
    await scene.schedule(shard=SHARD)
    held = await scene.hold()
    before = await lock(scene)
    # So late that the heartbeat of the holder lies a lease ahead of what the robber takes for now.
    robbing = scene.do.acquire_shard(sync_guid=uuid4(), holder="robber", lease=LEASE, lanes=())
    assert (await scene.run(late(robbing, LEASE + SECOND))).shard is None
    assert await lock(scene) == before
    assert await scene.run(scene.do.beat_shard(held.shard, held.guid))


@pytest.mark.parametrize(("by", "shard"), [(SECOND, SHARD), (TOO_LATE, None)])
async def test_a_free_shard_is_taken_in_time_alone(scene: Scene, by: timedelta, shard: int | None):
    await scene.schedule(shard=SHARD)
    taking = scene.do.acquire_shard(sync_guid=uuid4(), holder="w", lease=LEASE, lanes=())
    assert (await scene.run(late(taking, by))).shard == shard


@pytest.mark.parametrize(("by", "is_held"), [(SECOND, True), (timedelta(seconds=4), False)])
async def test_a_late_heartbeat_is_none(scene: Scene, by: timedelta, is_held: bool):
    await scene.schedule(shard=SHARD)
    held = await scene.hold()
    before = await lock(scene)
    assert await scene.run(late(scene.do.beat_shard(held.shard, held.guid), by)) is is_held
    assert (await lock(scene) == before) is not is_held


@pytest.mark.parametrize(("by", "took"), [(timedelta(0), True), (SECOND, False)])
async def test_a_move_takes_no_shard_after_the_end_that_it_was_given(scene: Scene, by: timedelta, took: bool):
    await scene.schedule(shard=SHARD)
    # Asked a second ago it would have been in time: its end was half a second ago.
    end = await database_time(scene) + (timedelta(minutes=1) if took else -SECOND / 2)
    moved = await scene.run(late(moving(scene, uuid4(), Taking("w", end)), by))
    assert (moved.took_shard, len(moved.attempts)) == (took, int(took))
    assert await scene.waiting("incoming_queue") == (set() if took else {"a"})


async def test_who_came_too_late_for_all_that_have_work_says_so(scene: Scene, postgres_dsn: str):
    """It has not looked in vain, as one would that may leave what comes to others."""
    await scene.schedule(shard=SHARD)
    taking = scene.do.acquire_shard(sync_guid=uuid4(), holder="w", lease=LEASE, lanes=())
    async with held(postgres_dsn, "select from matrixsched.shard_locks"):
        acquired = await scene.run(taking)
    assert (acquired.shard, acquired.contended) == (None, True)
    acquired = await scene.run(taking)
    assert (acquired.shard, acquired.contended) == (SHARD, False)


# Attempts.


@pytest.mark.parametrize(("by", "found"), [(SECOND, 1), (TOO_LATE, 0)])
async def test_nothing_is_moved_late(scene: Scene, by: timedelta, found: int):
    await scene.schedule(shard=SHARD, delay=-HOUR)
    held = await scene.hold()
    moved = await scene.run(late(moving(scene, held.guid, None), by))
    assert (moved.seen, len(moved.attempts)) == (found, found)


@pytest.mark.parametrize(("by", "found"), [(SECOND, 1), (TOO_LATE, 0)])
async def test_nothing_is_claimed_late(scene: Scene, by: timedelta, found: int):
    await scene.put_in_processing("a", shard=SHARD, delay=-HOUR)
    held = await scene.hold()
    claiming = scene.do.claim(held.shard, held.guid, lane="", handlers=[HANDLER], limit=9, attempt_lease=LEASE)
    claimed = await scene.run(late(claiming, by))
    assert (claimed.seen, len(claimed.attempts)) == (found, found)


async def extended(scene: Scene, holding: Holding, by: timedelta) -> tuple[Extension, timedelta]:
    """By an extension that is so late; how much longer the lease is then."""
    before = (await scene.row())["scheduled_at"]
    answers = await scene.run(late(scene.do.extend([holding], attempt_lease=LEASE), by))
    return answers[holding.claim.guid], (await scene.row())["scheduled_at"] - before


async def test_a_late_extension_shortens_no_lease(scene: Scene):
    attempt = await scene.start(shard=SHARD)
    holding = Holding(attempt.claim, HOUR)
    kept, later = await extended(scene, holding, timedelta(0))
    assert (kept, later > timedelta(0)) == (Extension.EXTENDED, True)
    assert await extended(scene, holding, SECOND) == (Extension.EXTENDED, timedelta(0))
    assert await extended(scene, holding, TOO_LATE) == (Extension.BUSY, timedelta(0))
    assert await extended(scene, holding, LEASE + SECOND) == (Extension.BUSY, timedelta(0))
    assert await scene.sync() == []
    assert await scene.record(done(attempt)) == [Answer.RECORDED]


async def test_an_extension_ends_what_a_clock_left_behind_that_was_set_back_and_nothing_past_its_end(scene: Scene):
    attempt = await scene.start(shard=SHARD)
    for lies_ahead, longest, left in ((HOUR, HOUR, LEASE), (LEASE - SECOND, SECOND, SECOND)):
        await scene.sql("update matrixsched.processing_queue set scheduled_at = scheduled_at + :by", by=lies_ahead)
        answer, _ = await extended(scene, Holding(attempt.claim, longest), timedelta(0))
        assert answer is Extension.EXTENDED
        assert (await scene.row())["scheduled_at"] <= await database_time(scene) + left


async def test_what_is_in_time_goes_all_its_way(scene: Scene):
    """By the real clock, without a test's."""
    await scene.send([scene.new(f"in {shard}", shard=shard) for shard in range(4)])
    attempts = []
    while found := await scene.sync():
        attempts += found
    assert [attempt.claim.shard for attempt in attempts] == [0, 1, 2, 3]
    assert {await scene.extend(attempt) for attempt in attempts} == {Extension.EXTENDED}
    assert await scene.give_back(attempts[0]) == 1
    assert await scene.record(*map(done, attempts)) == [Answer.LOST, *[Answer.RECORDED] * 3]
    (again,) = await scene.sync()
    assert again.claim.action_id == "in 0"
    assert await scene.finish(again) is Answer.RECORDED


# Chores.


@pytest.mark.parametrize(("by", "in_time"), [(SECOND, True), (TOO_LATE, False)])
async def test_a_chore_is_not_taken_nor_kept_late(scene: Scene, by: timedelta, in_time: bool):
    holder, start = uuid4(), TidyPosition()
    taking = scene.do.take_chore("tidy", holder, every=SECOND, lease=LEASE)
    assert (await scene.run(late(taking, by)) is not None) is in_time
    assert await scene.run(taking) == start
    assert await scene.run(late(scene.do.keep_chore("tidy", holder, start, lease=LEASE), by)) is in_time


def test_leases_in_hundreds_of_shards_are_prolonged_in_time_however_long_all_of_them_take():
    """By the time of the first of them the last ones would be too late at each turn, and their attempts run twice."""
    shards, took = 256, LEASE / 3 / 100
    do = DistributedTransitions("default")
    holdings = [Holding(Claim(shard, "a", uuid4(), 1, uuid4()), HOUR) for shard in range(shards)]
    conversation = timed(do.extend(holdings, attempt_lease=LEASE), do.asking_now()).begin()
    now, asked, rows = datetime(2026, 11, 19, tzinfo=UTC), list[int](), list[Row]()
    ask = next(conversation)
    while len(asked) < shards:
        if ask.statement.name == "now":
            rows = [{"now": now, "takes_writes": True}]
        else:
            late_at = ask.parameters["late_at"]
            assert isinstance(late_at, datetime)
            assert now < late_at
            asked.append(ask.parameters["shard_id"])  # type: ignore[arg-type]
            rows = []
        now += took
        with suppress(StopIteration):
            ask = conversation.send(rows)
    assert asked == list(range(shards))
