"""Old things go, in small batches; nothing that is still needed does."""

from datetime import timedelta

import pytest
from support.scene import LEASE, Scene, ended, failed

from matrixsched import Outcome, State
from matrixsched.rules.retention import FINISHED
from matrixsched.store.values import Answer, SweepPosition

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
WEEK = timedelta(days=7)
TICK = timedelta(microseconds=1)
BEGINNING = SweepPosition()


async def prune(scene: Scene, *states: State, limit: int = 100) -> int:
    """Of all states unless some are named."""
    gone = [await scene.run(scene.do.prune_actions(one, keep=WEEK, limit=limit)) for one in states or FINISHED]
    return sum(gone)


async def stored(scene: Scene) -> set[str]:
    return await scene.waiting("scheduled_actions")


async def test_finished_actions_are_pruned_when_they_are_old(scene: Scene):
    await scene.finish(await scene.start("done"))
    await scene.schedule("cancelled")
    await scene.cancel("cancelled")
    scene.clock.advance(WEEK)
    assert await prune(scene) == 0
    scene.clock.advance(TICK)
    assert await prune(scene) == 2
    assert await stored(scene) == set()


@pytest.mark.parametrize("state", FINISHED)
async def test_each_state_is_pruned_for_itself(scene: Scene, state: State):
    for one in FINISHED:
        await scene.record(ended(await scene.start(one.value), Outcome.SUCCEEDED, one))
    scene.clock.advance(WEEK + TICK)
    assert await scene.run(scene.do.count_old(state, keep=WEEK, count_max=9)) == 1
    assert await prune(scene, state) == 1
    assert await stored(scene) == {one.value for one in FINISHED} - {state.value}
    assert await scene.run(scene.do.count_old(state, keep=WEEK, count_max=9)) == 0


async def test_counting_what_is_old_stops_where_it_is_told_and_deletes_nothing(scene: Scene):
    for id in "abc":
        await scene.finish(await scene.start(id))
    assert await scene.run(scene.do.count_old(State.DONE, keep=WEEK, count_max=9)) == 0
    scene.clock.advance(WEEK + TICK)
    assert await scene.run(scene.do.count_old(State.DONE, keep=WEEK, count_max=9)) == 3
    assert await scene.run(scene.do.count_old(State.DONE, keep=WEEK, count_max=2)) == 2
    assert len(await stored(scene)) == 3


async def test_live_actions_are_never_pruned_however_old(scene: Scene):
    await scene.schedule("waiting", delay=100 * WEEK)
    await scene.start("running")
    await scene.record(failed(await scene.start("retried")))
    scene.clock.advance(50 * WEEK)
    assert await prune(scene) == 0
    assert await stored(scene) == {"waiting", "running", "retried"}


@pytest.mark.parametrize("operation", ["schedule", "reschedule"])
async def test_what_was_finished_and_begins_anew_is_not_pruned(scene: Scene, operation):
    await scene.finish(await scene.start())
    scene.clock.advance(2 * WEEK)
    await (scene.schedule() if operation == "schedule" else scene.reschedule(revive=True))
    assert await prune(scene) == 0
    await scene.finish((await scene.sync())[0])
    assert await prune(scene) == 0


async def test_pruning_takes_the_oldest_first_and_no_more_than_allowed(scene: Scene):
    for id in "cab":
        await scene.finish(await scene.start(id))
        scene.clock.advance(DAY)
    scene.clock.advance(2 * WEEK)
    assert await prune(scene, limit=2) == 2
    assert await stored(scene) == {"b"}
    assert await prune(scene, limit=2) == 1
    assert await prune(scene, limit=2) == 0


async def test_the_history_of_a_pruned_action_goes_with_it(scene: Scene):
    for id in "ab":
        await scene.record(failed(await scene.start(id), delay=DAY))
    await scene.cancel("a")
    scene.clock.advance(2 * WEEK)
    assert await prune(scene) == 1
    assert await scene.history("a") == []
    assert len(await scene.history("b")) == 1


async def test_an_attempt_at_an_action_that_was_cancelled_and_pruned_ends_quietly(scene: Scene):
    attempt = await scene.start()
    await scene.cancel()
    scene.clock.advance(2 * WEEK)
    assert await prune(scene) == 1
    assert await scene.finish(attempt) is Answer.SUPERSEDED
    assert await scene.table("processing_queue") == []


async def test_requests_are_forgotten_when_they_are_old(scene: Scene):
    for id in "abc":
        await scene.schedule(id)
        scene.clock.advance(DAY)

    async def forget(limit: int) -> int:
        return await scene.run(scene.do.prune_requests(keep=2 * DAY, limit=limit))

    assert await forget(100) == 1
    scene.clock.advance(WEEK)
    assert await forget(1) == 1
    assert len(await scene.table("requests")) == 1
    assert await forget(100) == 1
    assert await forget(100) == 0
    assert await stored(scene) == set("abc")


async def test_a_request_is_known_exactly_as_long_as_it_is_kept(scene: Scene):
    request, new = scene.guid(), scene.new()
    await scene.send([new], request=request)
    scene.clock.advance(DAY)
    assert await scene.run(scene.do.prune_requests(keep=DAY, limit=100)) == 0
    assert await scene.send([scene.new()], request=request) == []


async def sweep(scene: Scene, position: SweepPosition = BEGINNING, *, limit: int = 100):
    return await scene.run(scene.do.sweep_dead(position, limit=limit))


async def test_dead_rows_far_in_the_future_are_swept(scene: Scene):
    await scene.put_in_processing("replaced", "moved", "cancelled", "live", delay=100 * DAY)
    await scene.put_in_processing("replaced", delay=200 * DAY)
    await scene.reschedule("moved", delay=200 * DAY)
    await scene.cancel("cancelled")
    swept = await sweep(scene)
    assert (swept.gone, swept.position) == (3, BEGINNING)
    assert await scene.waiting("processing_queue") == {"replaced", "live"}
    assert (await sweep(scene)).gone == 0


async def test_incoming_rows_are_left_to_the_move(scene: Scene):
    await scene.schedule()
    await scene.schedule()
    assert (await sweep(scene)).gone == 0
    assert len(await scene.table("incoming_queue")) == 2


async def test_an_attempt_under_way_is_never_swept(scene: Scene):
    attempt = await scene.start()
    await scene.schedule(delay=DAY)
    scene.clock.advance(LEASE - TICK)
    assert (await sweep(scene)).gone == 0
    assert await scene.finish(attempt) is Answer.SUPERSEDED


async def test_a_dead_attempt_whose_lease_ran_out_is_swept(scene: Scene):
    await scene.start()
    await scene.cancel()
    scene.clock.advance(LEASE)
    assert (await sweep(scene)).gone == 1
    assert (await scene.action()).status.state is State.CANCELLED


async def test_the_sweeper_goes_round_everything_a_few_rows_at_a_time(scene: Scene):
    for shard in (0, 2, 3):
        await scene.put_in_processing(*[f"a{n}" for n in range(3)], shard=shard, delay=DAY)
        for n in (0, 2):
            await scene.cancel(f"a{n}", shard=shard)
    position, gone, rounds = BEGINNING, [], 0
    while True:
        swept = await sweep(scene, position, limit=2)
        gone.append(swept.gone)
        position, rounds = swept.position, rounds + 1
        if position == BEGINNING:
            break
    assert (sum(gone), rounds) == (6, 5)
    assert len(await scene.table("processing_queue")) == 3


async def test_a_round_over_nothing_ends_where_it_began(scene: Scene):
    swept = await sweep(scene)
    assert (swept.gone, swept.position) == (0, BEGINNING)
