"""A day has 24 hours, whatever time zone the database's sessions are in."""

from datetime import timedelta

import pytest
from support.drivers import with_options
from support.scene import Scene, failed

from matrixsched import State

pytestmark = pytest.mark.anyio

SUMMER_AND_BACK = [timedelta(days=120), timedelta(days=200, microseconds=1)]


@pytest.fixture
def shared_postgres_dsn(shared_postgres_dsn: str) -> str:
    """Its sessions set their clocks forward in spring and back in autumn."""
    return with_options(shared_postgres_dsn, timezone="Europe/Berlin")


@pytest.mark.parametrize("delay", SUMMER_AND_BACK)
async def test_a_delay_is_as_long_as_it_says(scene: Scene, delay):
    await scene.schedule("scheduled", delay=delay)
    replaced = await scene.schedule("replaced")
    await scene.run(
        scene.do.replace_expected(scene.new("replaced", delay=delay), scene.guid(), replaced.guid, tell=False)
    )
    await scene.schedule("moved")
    await scene.reschedule("moved", delay=delay)
    attempt = await scene.start("failed")
    await scene.record(failed(attempt, delay=delay))
    for id in ("scheduled", "replaced", "moved", "failed"):
        assert (await scene.action(id)).status.scheduled_at == scene.now + delay, id
    assert {row["scheduled_at"] for row in await scene.table("processing_queue")} == {scene.now + delay}


@pytest.mark.parametrize("delay", SUMMER_AND_BACK)
async def test_an_attempt_may_last_as_long_as_it_may(scene: Scene, delay):
    attempt = await scene.start()
    scene.clock.advance(delay - timedelta(seconds=1))
    await scene.extend(attempt, longest=delay)
    assert (await scene.row())["scheduled_at"] == attempt.claimed_at + delay


@pytest.mark.parametrize("keep", SUMMER_AND_BACK)
async def test_what_is_kept_is_kept_as_long_as_asked(scene: Scene, keep):
    await scene.finish(await scene.start())
    scene.clock.advance(keep)
    assert await scene.run(scene.do.prune_actions(State.DONE, keep=keep, limit=9)) == 0
    scene.clock.advance(timedelta(microseconds=1))
    assert await scene.run(scene.do.prune_actions(State.DONE, keep=keep, limit=9)) == 1
