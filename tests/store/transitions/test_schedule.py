"""Writing actions: each request once, each action with exactly one row."""

from datetime import timedelta

import pytest
from support.scene import LEASE, Scene, ended, failed

from matrixsched import Outcome, Retry, State
from matrixsched.rules.action import Terms
from matrixsched.store.values import NewAction

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def test_a_new_action_is_live_and_waits_in_incoming(scene: Scene):
    terms = Terms(retry=Retry(max_attempts=2), timeout=timedelta(microseconds=1))
    new = scene.new(
        "ä",
        shard=3,
        payload=b"\x00\xff",
        terms=terms,
        priority=7,
        template="promo",
        zone="Asia/Tokyo",
        at=scene.now + HOUR,
        expires_at=scene.now + 2 * HOUR,
    )
    (written,) = await scene.send([new])
    assert (written.id, written.guid, written.created, written.running) == ("ä", new.guid, True, False)

    action = await scene.action("ä", shard=3)
    assert (action.meta.guid, action.meta.revision, action.meta.shard) == (new.guid, 1, 3)
    assert (action.meta.created_at, action.meta.updated_at) == (scene.now, scene.now)
    assert action.spec.payload == b"\x00\xff"
    assert (action.spec.terms, action.spec.priority, action.spec.template) == (terms, 7, "promo")
    assert (action.spec.zone, action.spec.expires_at) == ("Asia/Tokyo", scene.now + 2 * HOUR)
    assert (action.status.state, action.status.scheduled_at) == (State.LIVE, scene.now + HOUR)
    assert (action.status.attempts_started, action.status.last_outcome, action.status.finished_at) == (0, None, None)

    (row,) = await scene.table("incoming_queue")
    assert (row["shard_id"], row["action_guid"]) == (3, new.guid)
    assert (row["created_at"], row["scheduled_at"]) == (scene.now, scene.now + HOUR)
    assert row["expires_at"] == scene.now + 2 * HOUR
    assert await scene.table("processing_queue") == []


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(microseconds=1), timedelta(days=3653, microseconds=-1)])
async def test_a_delay_counts_from_the_databases_time_to_the_microsecond(scene: Scene, delay):
    await scene.schedule(delay=delay)
    assert (await scene.action()).status.scheduled_at == scene.now + delay


@pytest.mark.parametrize(
    ("timing", "tick", "due"),
    [
        ({"at": HOUR}, HOUR, HOUR),
        ({"delay": HOUR}, HOUR, HOUR),
        ({"at": HOUR, "delay": timedelta(days=1)}, HOUR, HOUR + timedelta(days=1)),
    ],
    ids=["at", "delay", "at and delay"],
)
async def test_a_delay_after_an_instant_moves_the_run_and_leaves_the_tick(scene: Scene, timing, tick, due):
    timing = timing | ({"at": scene.now + timing["at"]} if "at" in timing else {})
    first = await scene.schedule(**timing)
    for replaced in (False, True):
        if replaced:
            new = scene.new(**timing)
            assert await scene.run(scene.do.replace_expected(new, scene.guid(), first.guid, tell=False)) is not None
        (row,) = await scene.table("scheduled_actions")
        assert (row["tick_at"], row["scheduled_at"]) == (scene.now + tick, scene.now + due)


async def test_replacing_leaves_the_old_row_dead_and_queues_the_new_version(scene: Scene):
    old = await scene.schedule(payload=b"old", delay=HOUR)
    new = await scene.schedule(payload=b"new", handler="other", priority=3, delay=2 * HOUR)
    assert (new.created, new.running) == (False, False)
    action = await scene.action()
    assert (action.meta.guid, action.meta.revision) == (new.guid, 2)
    assert (action.spec.payload, action.spec.handler, action.spec.priority) == (b"new", "other", 3)
    assert action.status.scheduled_at == scene.now + 2 * HOUR
    assert {row["action_guid"] for row in await scene.table("incoming_queue")} == {old.guid, new.guid}


async def test_replacing_resets_all_that_happened(scene: Scene):
    attempt = await scene.start()
    attempt = await scene.interrupt(attempt)
    await scene.record(failed(attempt))
    scene.clock.advance(timedelta(seconds=1))
    (attempt,) = await scene.sync()
    await scene.record(ended(attempt, Outcome.FAILED, State.FAILED, tick=5, tick_failures=3, error="no luck"))
    before = (await scene.action()).status
    assert (before.state, before.failed, before.interrupted) == (State.FAILED, 2, 1)

    scene.clock.advance(HOUR)
    await scene.schedule(delay=HOUR)
    action = await scene.action()
    assert action.meta.created_at == scene.now
    status = action.status
    assert (status.state, status.scheduled_at, status.finished_at) == (State.LIVE, scene.now + HOUR, None)
    assert (status.tick, status.succeeded, status.failed, status.interrupted, status.missed) == (0, 0, 0, 0, 0)
    assert (status.consecutive_failures, status.last_outcome, status.last_error) == (0, None, None)
    assert (status.last_started_at, status.last_ended_at) == (None, None)
    (row,) = await scene.sql("select tick, tick_at, tick_failures from matrixsched.scheduled_actions")
    assert (row["tick"], row["tick_at"], row["tick_failures"]) == (0, scene.now + HOUR, 0)


async def test_replacing_tells_whether_an_attempt_is_under_way(scene: Scene):
    await scene.start()
    assert (await scene.schedule()).running
    scene.clock.advance(LEASE)
    assert not (await scene.schedule()).running


async def test_keeping_leaves_what_exists_and_writes_what_does_not(scene: Scene):
    old = await scene.schedule("a", payload=b"old")
    written = await scene.send([scene.new("a", payload=b"new"), scene.new("b")], replace=False)
    assert [(one.id, one.created) for one in written] == [("b", True)]
    action = await scene.action("a")
    assert (action.meta.guid, action.spec.payload) == (old.guid, b"old")
    assert len(await scene.table("incoming_queue")) == 2


async def test_keeping_also_leaves_a_finished_action(scene: Scene):
    await scene.finish(await scene.start())
    assert await scene.send([scene.new()], replace=False) == []
    assert (await scene.action()).status.state is State.DONE


async def send_if_new(scene: Scene, *batch: NewAction) -> list[str]:
    sending = scene.do.schedule(batch, scene.guid(), replace=False, only_if_new=True, lock_timeout=None, tell=False)
    return sorted(written.id for written in await scene.run(sending))


async def test_only_if_new_writes_all_or_none(scene: Scene):
    await scene.schedule("there")
    before = await scene.contents()
    assert await send_if_new(scene, scene.new("a"), scene.new("there"), scene.new("b")) == []
    assert await scene.contents() == before
    assert await send_if_new(scene, scene.new("a"), scene.new("b")) == ["a", "b"]


async def test_what_is_there_in_another_shard_or_under_another_id_is_new_all_the_same(scene: Scene):
    await scene.schedule("a", shard=1)
    await scene.schedule("b", shard=0)
    assert await send_if_new(scene, scene.new("a", shard=0)) == ["a"]
    assert len(await scene.table("incoming_queue")) == 3


async def test_a_request_sent_twice_writes_once(scene: Scene):
    request, new = scene.guid(), scene.new()
    assert len(await scene.send([new], request=request)) == 1
    before = await scene.contents()
    assert await scene.send([new], request=request) == []
    assert await scene.contents() == before


async def test_a_late_twin_does_not_bring_back_what_was_replaced_meanwhile(scene: Scene):
    request, old = scene.guid(), scene.new(payload=b"old")
    await scene.send([old], request=request)
    new = await scene.schedule(payload=b"new")
    assert await scene.send([old], request=request) == []
    assert (await scene.action()).meta.guid == new.guid


async def test_a_late_twin_does_not_revive_what_is_finished(scene: Scene):
    request, new = scene.guid(), scene.new()
    await scene.send([new], request=request)
    (attempt,) = await scene.sync()
    await scene.finish(attempt)
    assert await scene.send([new], request=request) == []
    assert (await scene.action()).status.state is State.DONE
    assert await scene.sync() == []


async def test_of_a_batch_only_rows_whose_requests_are_new_are_written(scene: Scene):
    first = scene.new("a", request_guid=scene.guid())
    await scene.send([first])
    batch = [scene.new("a", request_guid=first.request_guid), scene.new("b", request_guid=scene.guid()), scene.new("c")]
    written = await scene.send(batch)
    assert [one.id for one in written] == ["b", "c"]
    assert (await scene.action("a")).meta.guid == first.guid


async def test_a_batch_tells_for_each_row_whether_it_was_created(scene: Scene):
    await scene.schedule("b")
    written = await scene.send([scene.new(id) for id in "abc"])
    assert {one.id: one.created for one in written} == {"a": True, "b": False, "c": True}
    assert {one.id: one.guid for one in written} == {id: (await scene.action(id)).meta.guid for id in "abc"}


async def test_actions_of_the_same_id_in_different_shards_are_different_actions(scene: Scene):
    await scene.send([scene.new("a", shard=0), scene.new("a", shard=1)])
    assert len(await scene.run(scene.do.find([(0, "a"), (1, "a"), (2, "a")]))) == 2


async def test_an_empty_batch_writes_nothing(scene: Scene):
    assert await scene.send([]) == []
    assert await scene.table("incoming_queue") == []


async def test_replacing_what_was_read_writes_over_that_version_only(scene: Scene):
    first = await scene.schedule(payload=b"1")
    await scene.schedule("b")
    new = scene.new(payload=b"2", delay=HOUR)
    written = await scene.run(scene.do.replace_expected(new, scene.guid(), first.guid, tell=False))
    assert written is not None
    assert (written.guid, written.created, written.running) == (new.guid, False, False)
    action = await scene.action()
    assert (action.spec.payload, action.meta.revision) == (b"2", 2)
    assert action.status.scheduled_at == scene.now + HOUR

    before = await scene.contents()
    late = scene.do.replace_expected(scene.new(payload=b"3"), scene.guid(), first.guid, tell=False)
    assert await scene.run(late) is None
    after = await scene.contents()
    assert after | {"requests": []} == before | {"requests": []}


async def test_replacing_what_was_read_is_done_once_per_request(scene: Scene):
    first = await scene.schedule()
    request, new = scene.guid(), scene.new()
    assert await scene.run(scene.do.replace_expected(new, request, first.guid, tell=False)) is not None
    before = await scene.contents()
    assert await scene.run(scene.do.replace_expected(new, request, first.guid, tell=False)) is None
    assert await scene.contents() == before


async def test_replacing_what_was_read_begins_anew_also_what_is_finished(scene: Scene):
    attempt = await scene.start()
    await scene.record(ended(attempt, Outcome.FAILED, State.FAILED, error="no luck"))
    new = scene.new()
    assert await scene.run(scene.do.replace_expected(new, scene.guid(), attempt.claim.guid, tell=False)) is not None
    status = (await scene.action()).status
    assert (status.state, status.failed, status.last_error, status.finished_at) == (State.LIVE, 0, None, None)


async def test_replacing_what_does_not_exist_creates_nothing(scene: Scene):
    assert await scene.run(scene.do.replace_expected(scene.new(), scene.guid(), scene.guid(), tell=False)) is None
    assert await scene.table("scheduled_actions") == []


async def test_replacing_what_was_read_tells_whether_an_attempt_is_under_way(scene: Scene):
    attempt = await scene.start()
    written = await scene.run(scene.do.replace_expected(scene.new(), scene.guid(), attempt.claim.guid, tell=False))
    assert written is not None
    assert written.running
    scene.clock.advance(LEASE)
    again = await scene.run(scene.do.replace_expected(scene.new(), scene.guid(), written.guid, tell=False))
    assert not again.running  # its lease is over


async def test_versions_rise_whatever_the_clock_does(scene: Scene):
    versions = []
    for days in range(4):
        await scene.schedule()
        versions.append((await scene.action()).meta.version)
        scene.clock.time -= timedelta(days=days)
    assert versions == sorted(set(versions))
