"""Repetition by the calendar, as users and workers meet it, on both databases."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import pytest

from matrixsched import App, Context, Daily, Outcome, Retry, RetryAt, State, call, catch_up, cron, every
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import ActionNotFound, InvalidNumber
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BERLIN = "Europe/Berlin"


@pytest.fixture
def ran(app: App, clock: ManualClock) -> list[datetime]:
    """When the handler "note" was called."""
    times: list[datetime] = []

    @app.action("note")
    async def note() -> None:
        times.append(clock.now())

    return times


async def pass_time(app: App, clock: ManualClock, until: datetime, step: timedelta) -> None:
    worker = Worker(app)
    while clock.now() < until:
        clock.advance(min(step, until - clock.now()))
        await worker.run_due()


async def run_all_due(app: App) -> int:
    """Run what is due until nothing is; how many runs that took."""
    worker, runs = Worker(app), 0
    while count := await worker.run_due():
        runs += count
        assert runs < 1000
    return runs


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("begin", "repeated", "expected"),
    [
        ("2030-03-30T12:00+01:00", None, ["2030-03-31T03:00+02:00", "2030-04-01T02:30+02:00"]),
        ("2030-10-26T12:00+02:00", None, ["2030-10-27T02:30+02:00", "2030-10-28T02:30+01:00"]),
        ("2030-10-26T12:00+02:00", "both", ["2030-10-27T02:30+02:00", "2030-10-27T02:30+01:00"]),
    ],
)
async def test_a_time_of_day_is_kept_across_a_change_of_the_clocks(app, clock, ran, begin, repeated, expected):
    clock.time = at(begin)
    await app.schedule("note", id="n", repeat=cron("30 2 * * *", BERLIN, repeated=repeated))
    assert await app.next_runs("n", len(expected)) == [at(moment) for moment in expected]
    await pass_time(app, clock, at(expected[-1]), 30 * MINUTE)
    assert ran == [at(moment) for moment in expected]


async def test_after_a_standstill_the_overdue_tick_runs_late_and_once(app, clock, ran):
    await app.schedule("note", id="n", repeat=cron("0 * * * *"))
    clock.advance(3 * DAY + 5 * MINUTE)
    assert await run_all_due(app) == 1
    status = (await app.get("n")).status
    assert (status.succeeded, status.missed) == (1, 0)
    assert status.scheduled_at == clock.now() + 55 * MINUTE


async def test_after_a_standstill_what_is_late_can_be_dropped(app, clock, ran):
    await app.schedule("note", id="n", repeat=cron("0 * * * *", misfire="skip"))
    clock.advance(3 * DAY + 5 * MINUTE)
    await run_all_due(app)
    status = (await app.get("n")).status
    assert (ran, status.missed, status.last_outcome) == ([], 1, Outcome.MISSED)
    clock.advance(55 * MINUTE + timedelta(seconds=60))  # late, but within the grace
    await run_all_due(app)
    assert ran == [clock.now()]


async def test_how_late_is_too_late_can_be_said(app, clock, ran):
    rule = cron("0 * * * *", misfire="skip")
    await app.schedule("note", id="n", repeat=rule, start_within=10 * MINUTE)
    clock.advance(5 * MINUTE)
    await run_all_due(app)
    assert ran == [clock.now()]
    clock.advance(HOUR + 6 * MINUTE)
    await run_all_due(app)
    assert len(ran) == 1


async def test_a_retry_is_not_taken_for_a_tick_that_is_late(app, clock):
    answers = iter([RetryAt(10 * MINUTE), ValueError("no luck"), None])

    @app.action("moody", retry=Retry(first_delay=10 * MINUTE, jitter=0))
    async def moody() -> object:
        answer = next(answers)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    await app.schedule(moody, id="m", repeat=every(DAY, misfire="skip"))
    await run_all_due(app)
    for _ in range(2):
        clock.advance(10 * MINUTE)
        await run_all_due(app)
    status = (await app.get("m")).status
    assert (status.deferred, status.failed, status.succeeded, status.missed) == (1, 1, 1, 0)


async def test_after_a_standstill_the_newest_missed_ticks_are_made_up_for(app, clock, ran):
    first = clock.now() + HOUR
    await app.schedule("note", id="few", at=first, repeat=every(DAY, misfire=catch_up(10)))
    await app.schedule("note", id="many", at=first, repeat=cron("0 * * * *", misfire=catch_up(10)))
    clock.advance(3 * DAY + 5 * MINUTE)
    newest = clock.now() - 5 * MINUTE
    assert await app.next_runs("many", 3) == [first, newest - 9 * HOUR, newest - 8 * HOUR]
    await run_all_due(app)
    few, many = (await app.get("few")).status, (await app.get("many")).status
    assert (few.succeeded, few.missed, few.scheduled_at) == (3, 0, first + 3 * DAY)
    # The tick that was stored is one too many, and is recorded as missed.
    assert (many.succeeded, many.missed, many.scheduled_at) == (10, 1, newest + HOUR)


async def test_a_handler_is_told_which_tick_it_makes_up_for_also_when_it_is_tried_again(app, clock):
    told: list[tuple[datetime, datetime]] = []

    @app.action("hourly", retry=Retry(first_delay=MINUTE, jitter=0))
    async def hourly(context: Context) -> None:
        told.append((context.tick_at, context.scheduled_at))
        if context.failures == 0:
            raise ValueError("no luck")

    begin = clock.now()
    await app.schedule(hourly, id="h", repeat=cron("0 * * * *", misfire=catch_up(3)))
    clock.advance(HOUR + 5 * MINUTE)
    for _ in range(2):
        await run_all_due(app)
        clock.advance(MINUTE)
    await run_all_due(app)
    retried = begin + HOUR + 6 * MINUTE
    ticks = [begin, begin, begin + HOUR, begin + HOUR]
    assert told == list(zip(ticks, [begin, retried, begin + HOUR, retried + MINUTE], strict=True))


async def test_a_run_by_hand_gives_up_what_was_to_be_made_up_for(app, clock, ran):
    await app.schedule("note", id="n", repeat=cron("0 * * * *", misfire=catch_up(10)))
    clock.advance(5 * HOUR + MINUTE)
    await app.run_now("n")
    assert await run_all_due(app) == 1
    assert await app.next_runs("n", 1) == [clock.now() + 59 * MINUTE]


async def test_jitter_moves_the_start_but_not_the_grid(app, clock, ran):
    rule = every(HOUR, jitter=20 * MINUTE)
    first = clock.now() + HOUR
    scheduled = await app.schedule("note", id="n", at=first, repeat=rule)
    late = []
    for number in range(8):
        due = (await app.get("n")).status.scheduled_at
        late.append(due - first - number * HOUR)
        clock.advance(due - clock.now())
        assert await run_all_due(app) == 1
    assert all(timedelta(0) <= moved < 20 * MINUTE for moved in late)
    assert len(set(late)) == 8
    assert ran == [first + number * HOUR + moved for number, moved in enumerate(late)]
    # The same, written over a version that the caller has read.
    guid = (await app.get("n")).meta.guid
    assert guid == scheduled.guid
    await app.schedule("note", id="n", at=first + DAY, repeat=rule, expected_guid=guid)
    runs = await app.next_runs("n", 2)
    assert first + DAY < runs[0] < first + DAY + 20 * MINUTE
    assert runs[1] == first + DAY + HOUR


async def test_being_late_counts_from_the_tick_whatever_the_jitter(app, clock, ran):
    await app.schedule("note", id="n", repeat=every(HOUR, jitter=20 * MINUTE), start_within=30 * MINUTE)
    clock.advance(31 * MINUTE)
    await run_all_due(app)
    assert (ran, (await app.get("n")).status.missed) == ([], 1)


async def test_jitter_alone_makes_nothing_late(app, clock, ran):
    await app.schedule("note", id="n", repeat=every(DAY, jitter=20 * HOUR, misfire="skip"))
    for _ in range(5):
        clock.advance((await app.get("n")).status.scheduled_at - clock.now())
        await run_all_due(app)
    assert len(ran) == 5


async def test_a_restart_between_ticks_neither_repeats_nor_skips_one(database_url, clock):
    ran: list[datetime] = []
    for number in range(6):
        app = App(database_url, clock=clock, chance=SeededChance(number))

        @app.action("note")
        async def note() -> None:
            ran.append(clock.now())

        if number == 0:
            await app.init(shards=4)
        async with app:
            if number == 0:
                await app.schedule(note, id="n", repeat=cron("*/20 * * * *", BERLIN))
            await run_all_due(app)
            await run_all_due(app)
        clock.advance(10 * MINUTE)
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    assert ran == [begin, begin + 20 * MINUTE, begin + 40 * MINUTE]


async def test_an_excluded_day_is_left_out(app, clock, ran):
    rule = cron("0 9 * * *", BERLIN, exclude=[date(2030, 1, 2), Daily(time(22), time(6))])
    await app.schedule("note", id="n", repeat=rule)
    expected = [at("2030-01-01T09:00+01:00"), at("2030-01-03T09:00+01:00")]
    assert await app.next_runs("n", 2) == expected
    await pass_time(app, clock, expected[-1], HOUR)
    assert ran == expected


async def test_what_is_moved_by_hand_returns_to_its_rule(app, clock, ran):
    await app.schedule("note", id="n", repeat=cron("0 9 * * *"))
    await app.reschedule("n", at=clock.now() + 10 * HOUR + MINUTE)
    assert await app.next_runs("n", 2) == [clock.now() + 10 * HOUR + MINUTE, clock.now() + DAY + 9 * HOUR]
    clock.advance(11 * HOUR)
    await run_all_due(app)
    assert await app.next_runs("n", 1) == [datetime(2030, 1, 2, 9, tzinfo=UTC)]


@pytest.mark.parametrize(("misfire", "runs"), [("skip", 1), (catch_up(2), 3)])
async def test_what_is_asked_for_by_hand_is_no_tick_that_can_be_missed(app, clock, ran, misfire, runs):
    await app.schedule("note", id="n", repeat=cron("0 9 * * *", misfire=misfire))
    await app.reschedule("n", at=clock.now() + HOUR)
    clock.advance(3 * DAY)
    assert await run_all_due(app) == runs
    assert ran == [clock.now()] * runs
    await app.run_now("n")
    clock.advance(5 * MINUTE)
    await run_all_due(app)
    assert ran[runs:] == [clock.now()]
    assert (await app.get("n")).status.missed == 0


async def test_the_next_runs_end_with_the_action(app, clock, ran):
    midnight = clock.now()
    await app.schedule("note", id="once", at=midnight + HOUR)
    await app.schedule("note", id="ending", repeat=cron("0 * * * *"), expires_at=midnight + 2 * HOUR)
    await app.schedule("note", id="after", repeat=every(HOUR, after_end=True))
    await app.schedule("note", id="overdue", at=midnight - 3 * DAY, repeat=cron("30 * * * *"))
    assert await app.next_runs("once") == [midnight + HOUR]
    assert await app.next_runs("ending") == [midnight, midnight + HOUR]
    assert await app.next_runs("after", 3) == [midnight, midnight + HOUR, midnight + 2 * HOUR]
    assert await app.next_runs("overdue", 2) == [midnight - 3 * DAY + HOUR / 2, midnight + HOUR / 2]
    await app.cancel("once")
    assert await app.next_runs("once") == []
    with pytest.raises(ActionNotFound):
        await app.next_runs("nobody")
    with pytest.raises(InvalidNumber):
        await app.next_runs("ending", 0)


def test_the_next_runs_can_be_asked_from_synchronous_code(database_url, clock):
    app = App(database_url, clock=clock, chance=SeededChance(1))
    app.action("note")(lambda: None)
    app.sync.init(shards=4)
    with app.sync:
        app.sync.schedule("note", id="n", repeat=cron("0 9 * * *"))
        assert app.sync.next_runs("n", count=2) == [clock.now() + 9 * HOUR, clock.now() + 33 * HOUR]


async def test_many_calendars_are_scheduled_together(app, clock, ran):
    rules = [cron(f"{minute} 9 * * *", zone) for minute in range(10) for zone in (BERLIN, "Asia/Tokyo")]
    await app.schedule_many(call("note", id=str(number), repeat=rule) for number, rule in enumerate(rules))
    assert await app.next_runs("0", 1) == [at("2030-01-01T09:00+01:00")]
    assert await app.next_runs("19", 1) == [at("2030-01-01T09:09+09:00")]


async def test_a_rule_without_a_further_tick_ends_as_done(app, clock, ran):
    clock.time = datetime(2199, 12, 31, tzinfo=UTC)
    await app.schedule("note", id="n", repeat=cron("0 12 * * *"))
    clock.advance(12 * HOUR)
    await run_all_due(app)
    assert (await app.get("n")).status.state is State.DONE
