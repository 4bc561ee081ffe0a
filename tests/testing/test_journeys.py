"""Travelling: everything that comes due is run at the time it is due, by a real worker on a real store."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixsched import App, Outcome, Retry, RetryAt, State, call, cron, every
from matrixsched.errors import InvalidDuration, InvalidTime, NeverIdle, StageError
from matrixsched.testing import stage

pytestmark = pytest.mark.anyio

BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)
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


async def test_a_calendar_keeps_to_the_clock_on_the_wall(program):
    with stage(program.app, at=datetime(2030, 3, 30, tzinfo=UTC)) as on:
        await on.app.schedule("remind", reminder(), id="r", repeat=cron("0 9 * * *", zone="Europe/Berlin"))
        ran = await on.advance(3 * DAY)
        assert [one.at.hour for one in ran] == [8, 7, 7], "summer time began in the night to the second day"


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


def test_handlers_of_any_kind_may_call_what_is_synchronous(on, program):
    @program.app.action("blocks")
    async def blocks() -> None:
        program.app.sync.schedule("remind", reminder(), id="r", delay=DAY)
        on.assert_scheduled("remind", id="r")

    program.app.sync.schedule(blocks, id="b")
    assert [one.exception for one in on.sync.run_until_idle()] == [None, None]


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
    with pytest.raises(InvalidDuration, match="duration"):
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


# Laws.

PLANS = st.lists(
    st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(1, 20)), st.integers(0, 3)), min_size=1, max_size=5
)


def journey(plans: list[tuple[int, int | None, int]], legs: list[int]) -> list[tuple[object, ...]]:
    """What is run on the way, when actions (due after, repeated every, failing so often first) are scheduled."""
    app = App("postgresql://nowhere.invalid/x")
    failures = {f"a{number}": fails for number, (_, _, fails) in enumerate(plans)}

    @app.action("work", retry=Retry(first_delay=3 * SECOND, jitter=0))
    async def work(id: str) -> None:
        if failures[id]:
            failures[id] -= 1
            raise ValueError

    with stage(app) as on:
        for number, (delay, interval, _) in enumerate(plans):
            repeat = None if interval is None else every(interval * SECOND)
            app.sync.schedule(work, f"a{number}", id=f"a{number}", delay=delay * SECOND, repeat=repeat)
        ran = [one for leg in legs for one in on.sync.advance(leg * SECOND)]
        assert on.now == BEGINNING + sum(legs) * SECOND
        return sorted((one.at, one.id, one.attempt, one.outcome, one.state) for one in ran)


@settings(max_examples=25, deadline=None)
@given(plans=PLANS, legs=st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_a_journey_in_legs_runs_what_one_journey_runs(plans, legs):
    assert journey(plans, legs) == journey(plans, [sum(legs)])


@settings(max_examples=25, deadline=None)
@given(plans=PLANS)
def test_nothing_runs_before_it_is_due_and_everything_due_has_run(plans):
    first_at = {}
    for at, id, *_ in journey(plans, [60]):
        first_at.setdefault(id, at)
    assert first_at == {f"a{number}": BEGINNING + delay * SECOND for number, (delay, _, _) in enumerate(plans)}
