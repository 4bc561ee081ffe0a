"""Travelling: everything that comes due is run at the time it is due, by a real worker on a real store."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from matrixsched import Outcome, RetryAt, State, call, every
from matrixsched.errors import InvalidTime, NeverIdle, StageError
from matrixsched.testing import stage

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


def reminder(text: str = "tea") -> dict[str, object]:
    return {"user_id": 1, "text": text}


def seconds(moments, start) -> list[float]:
    return [(moment - start) / SECOND for moment in moments]


async def test_each_handler_runs_at_the_instant_it_is_due(on, program):
    start = on.now
    await on.app.schedule("remind", reminder("late"), id="l", delay=3 * DAY)
    await on.app.schedule("remind", reminder("soon"), id="s", delay=SECOND)
    ran = await on.advance(3 * DAY)
    assert program.said == [("soon", start + SECOND), ("late", start + 3 * DAY)]
    assert [(one.id, one.handler, one.attempt, one.at, one.outcome, one.state) for one in ran] == [
        ("s", "remind", 1, start + SECOND, "succeeded", "done"),
        ("l", "remind", 1, start + 3 * DAY, "succeeded", "done"),
    ]
    assert ran[0].payload.text == "soon"
    assert on.ran == ran


async def test_a_journey_ends_where_it_was_to_end_and_runs_nothing_early(on, program):
    start = on.now
    await on.app.schedule("remind", reminder(), id="r", delay=3 * DAY)
    assert await on.advance(3 * DAY - SECOND) == []
    assert on.now == start + 3 * DAY - SECOND
    assert len(await on.travel_to(start + 5 * DAY)) == 1
    assert on.now == start + 5 * DAY
    assert program.said == [("tea", start + 3 * DAY)]


async def test_a_repeating_action_runs_at_every_tick(on, program):
    start = on.now
    await on.app.schedule("remind", reminder(), id="r", repeat=every(8 * 3600 * SECOND))
    await on.advance(DAY)
    assert seconds([at for _, at in program.said], start) == [0, 28800, 57600, 86400]


async def test_retries_are_made_after_their_delays(on, program):
    start, program.broken = on.now, True
    await on.app.schedule("remind", reminder(), id="r")
    ran = await on.run_until_idle()
    assert seconds([one.at for one in ran], start) == [0, 10, 30]
    assert [(one.outcome, one.state) for one in ran] == [("failed", "live"), ("failed", "live"), ("failed", "failed")]
    assert all(isinstance(one.exception, ConnectionError) for one in ran)
    assert ran[-1].error.startswith("ConnectionError: the mail server is away")


async def test_only_what_is_due_now_runs_without_travelling(on):
    await on.app.schedule("remind", reminder(), id="now")
    await on.app.schedule("remind", reminder(), id="later", delay=SECOND)
    assert [one.id for one in await on.run_due()] == ["now"]
    assert await on.run_due() == []


async def test_what_handlers_schedule_is_part_of_the_journey(program):
    @program.app.action("chain")
    async def chain(left: int) -> None:
        if left:
            await program.app.schedule(chain, left - 1, id=f"chain:{left}", delay=DAY)

    with stage(program.app) as on:
        start = on.now
        await program.app.schedule(chain, 3, id="chain")
        ran = await on.run_until_idle()
        assert [one.payload for one in ran] == [3, 2, 1, 0]
        assert on.now == start + 3 * DAY
        on.assert_not_scheduled()


async def test_until_idle_goes_no_further_than_it_may(on):
    start = on.now
    await on.app.schedule("remind", reminder(), id="r", repeat=every(DAY))
    assert len(await on.run_until_idle(within=10 * DAY)) == 11
    assert on.now == start + 10 * DAY


async def test_many_actions_of_one_instant(on, program):
    await on.app.schedule_many(call("remind", reminder(), id=f"r{n}", delay=DAY) for n in range(300))
    assert len(await on.advance(DAY)) == 300


async def test_plain_functions_run_in_threads_as_ever(on, program):
    await on.app.schedule("remind_from_thread", reminder(), id="r")
    (ran,) = await on.run_due()
    assert ran.outcome is Outcome.SUCCEEDED
    assert program.said == [("tea", on.now)]


def test_a_synchronous_test_travels_too(on, program):
    start = on.now
    on.app.sync.schedule("remind", reminder("one"), id="1", delay=DAY)
    on.app.sync.schedule("remind_from_thread", reminder("two"), id="2", delay=2 * DAY)
    assert [one.id for one in on.sync.advance(DAY)] == ["1"]
    assert on.sync.run_due() == []
    assert [one.id for one in on.sync.travel_to(start + 2 * DAY)] == ["2"]
    on.app.sync.run_now("1")
    assert [one.id for one in on.sync.run_until_idle()] == ["1"]


def test_without_any_test_runner(program):
    async def main() -> None:
        with stage(program.app) as on:
            await program.app.schedule("remind", reminder(), id="r", delay=DAY)
            assert len(await on.advance(DAY)) == 1

    anyio.run(main)


async def test_time_begins_where_the_test_says(program):
    begin = datetime(2031, 3, 30, 0, 59, tzinfo=UTC)
    with stage(program.app, at=begin) as on:
        assert on.now == begin
        await program.app.schedule("remind", reminder(), id="r")
        assert (await program.app.get("r")).meta.created_at == begin


async def test_a_seed_gives_one_run(program):
    async def guids(seed: int) -> set[object]:
        with stage(program.app, seed=seed):
            return {(await program.app.schedule("remind", reminder())).guid for _ in range(3)}

    assert await guids(1) == await guids(1) != await guids(2)


async def test_a_handler_that_hangs_is_cancelled_at_its_limit(program):
    @program.app.action("hang", timeout=12 * SECOND / 10)
    async def hang() -> None:
        await anyio.sleep_forever()

    with stage(program.app) as on:
        start = on.now
        await program.app.schedule(hang, id="h")
        (ran,) = await on.run_due()
        assert (ran.outcome, ran.state) == (Outcome.TIMED_OUT, State.LIVE)
        assert on.now == start + 2 * SECOND, "real time counts in whole seconds while a handler runs"


async def test_what_would_never_end_is_refused_and_named(program):
    @program.app.action("again")
    async def again() -> RetryAt:
        return RetryAt(timedelta(0))

    with stage(program.app, attempts_max=50) as on:
        await program.app.schedule("remind", reminder(), id="innocent")
        await program.app.schedule(again, id="a")
        with pytest.raises(NeverIdle, match="50 attempts were made in one go, 49 of them at action 'a'. Travel less"):
            await on.run_due()


async def test_a_stage_does_not_travel_back(on):
    with pytest.raises(InvalidTime, match="instant lies before 2030-01-01 00:00:00"):
        await on.travel_to(on.now - SECOND)
    with pytest.raises(InvalidTime, match="duration"):
        await on.advance(-SECOND)
    with pytest.raises(InvalidTime, match="instant"):
        await on.travel_to(datetime(2031, 1, 1))  # noqa: DTZ001


async def test_a_handler_cannot_travel(program):
    @program.app.action("impatient")
    async def impatient() -> None:
        await on.advance(DAY)

    with stage(program.app) as on:
        await program.app.schedule(impatient, id="i")
        (ran,) = await on.run_due()
        assert isinstance(ran.exception, StageError)
        assert "the stage is travelling already" in str(ran.exception)
