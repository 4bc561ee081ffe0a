"""Limits as programs set them, asynchronous or not, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf, nan

import anyio
import anyio.to_thread
import pytest

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.errors import (
    BadInput,
    InvalidDuration,
    InvalidLimit,
    InvalidNumber,
    InvalidRate,
    InvalidTime,
    LimitNotFound,
    UnknownTemplate,
)
from matrixsched.rules.limits import Closed
from matrixsched.rules.rates import Rate, parse_rate

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
DEADLINE_S = 30


async def test_a_limit_is_set_changed_and_removed(app: App, clock: ManualClock):
    limit = await app.limits.set("global", "10000/min", pool=100)
    assert (limit.rate, limit.pool) == (Rate(10_000, MINUTE), 100)
    assert await app.limits.get("global") == limit
    assert (await app.limits.set("global", Rate(5, MINUTE))).pool == 0
    assert [one.name for one in await app.limits.list()] == ["global"]
    assert await app.limits.remove("global")
    assert not await app.limits.remove("global")
    assert await app.limits.list() == []


async def test_what_is_not_set_is_not_found(app: App):
    with pytest.raises(LimitNotFound, match="handler:send.*limits list"):
        await app.limits.get("handler:send")


async def test_a_key_without_a_rate_of_its_own_has_that_of_all_keys(app: App, clock: ManualClock):
    await app.limits.set("key:*", "10/s", pool=2)
    await app.limits.slow_down("key:acme", MINUTE)
    clock.advance(MINUTE)
    limit = await app.limits.get("key:acme")
    assert (limit.effective(clock.now()), limit.pool) == (parse_rate("10/s"), 2)


async def test_keys_are_listed_on_request_page_by_page(app: App):
    for name in ("key:*", "key:b", "key:a", "global"):
        await app.limits.set(name, "1/s")
    assert [one.name for one in await app.limits.list()] == ["global", "key:*"]
    assert [one.name for one in await app.limits.list(keys=True, limit=3)] == ["global", "key:*", "key:a"]
    assert [one.name for one in await app.limits.list(keys=True, after="key:a")] == ["key:b"]
    assert await app.limits.count_keys() == 2


class TickingClock(ManualClock):
    """Time passes with every statement."""

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time


async def test_a_slow_down_that_is_over_before_it_is_written_is_none(database_url: str):
    app = App(database_url, clock=TickingClock())
    await app.init(shards=1)
    async with app:
        told = await app.limits.slow_down("global", timedelta(microseconds=1))
        assert not told.is_slowed(app.clock.now())


async def test_it_can_be_told_to_slow_down_and_to_go_on(app: App, clock: ManualClock):
    await app.limits.set("handler:send", "50/s")
    told = await app.limits.slow_down("handler:send", clock.now() + MINUTE, reason="HTTP 429")
    assert told.effective(clock.now()) == Closed(clock.now() + MINUTE)
    assert told.slow_reason == "HTTP 429"
    slower = await app.limits.slow_down("key:acme", MINUTE, rate="1/s")
    assert (slower.effective(clock.now()), slower.slow_reason) == (parse_rate("1/s"), None)
    assert await app.limits.resume("handler:send")
    assert (await app.limits.get("handler:send")).effective(clock.now()) == parse_rate("50/s")
    assert not await app.limits.resume("handler:send")


async def test_a_reason_that_no_database_takes_is_made_to_fit(app: App):
    told = await app.limits.slow_down("global", MINUTE, reason="no\x00pe \ud83d" + "x" * 3000)
    assert told.slow_reason.startswith("no\ufffdpe ?xxx")
    assert len(told.slow_reason) == 2000


async def test_the_limit_of_a_template_that_does_not_exist_is_refused(app: App):
    with pytest.raises(UnknownTemplate, match="promo"):
        await app.limits.set("template:promo", "1/s")
    assert await app.limits.list() == []


@pytest.mark.parametrize(
    "rate",
    ["10", "0/min", "-1/min", "1.5/min", "nan/min", "inf/s", "1/0s", "1/fortnight", "", "/min", "1/-5s"]
    + [0, -1, nan, inf, None, True, 10, b"1/s", ("1", "s")],
)
async def test_a_rate_that_nothing_can_go_at_is_refused(app: App, rate):
    with pytest.raises(InvalidRate, match=r"for example 10000/min"):
        await app.limits.set("global", rate)
    if rate is not None:
        with pytest.raises(InvalidRate):
            await app.limits.slow_down("global", MINUTE, rate=rate)
    assert await app.limits.list() == []


@pytest.mark.parametrize("pool", [-1, 1.5, nan, inf, True, "3", None, 10**10])
async def test_a_pool_that_is_no_number_of_slots_is_refused(app: App, pool):
    with pytest.raises(InvalidNumber, match="pool"):
        await app.limits.set("global", "1/s", pool=pool)
    assert await app.limits.list() == []


@pytest.mark.parametrize("name", ["promo", "tenant:acme", "", "key:", "Global", "handler:a\x00", None, 7])
async def test_what_is_no_name_of_a_limit_is_refused_everywhere(app: App, name):
    calls = [
        lambda: app.limits.set(name, "1/s"),
        lambda: app.limits.remove(name),
        lambda: app.limits.get(name),
        lambda: app.limits.slow_down(name, MINUTE),
        lambda: app.limits.resume(name),
    ]
    for call in calls:
        with pytest.raises(InvalidLimit, match="A limit is called global"):
            await call()
    assert await app.limits.list() == []


@pytest.mark.parametrize(
    ("until", "error"),
    [
        (timedelta(0), InvalidDuration),
        (-MINUTE, InvalidDuration),
        (timedelta(days=5000), InvalidDuration),
        (datetime(2029, 12, 31, tzinfo=UTC), InvalidTime),
        (datetime(2030, 1, 1, tzinfo=UTC), InvalidTime),
        (datetime(2031, 1, 1), InvalidTime),  # noqa: DTZ001
        (datetime(2300, 1, 1, tzinfo=UTC), InvalidTime),
        (60, InvalidTime),
        ("5m", InvalidTime),
        (None, InvalidTime),
    ],
)
async def test_an_end_that_is_none_or_has_passed_is_refused(app: App, until, error):
    with pytest.raises(error, match="until"):
        await app.limits.slow_down("global", until)
    assert await app.limits.list() == []


async def test_neither_all_keys_nor_a_reason_that_is_no_text_can_be_told(app: App):
    with pytest.raises(InvalidLimit, match="slow one of them down"):
        await app.limits.slow_down("key:*", MINUTE)
    with pytest.raises(BadInput, match="reason must be a string, not int"):
        await app.limits.slow_down("global", MINUTE, reason=429)
    assert await app.limits.list() == []


@pytest.mark.parametrize("limit", [0, -1, 10_001, 1.5])
async def test_a_page_has_a_size(app: App, limit):
    with pytest.raises(InvalidNumber, match="limit"):
        await app.limits.list(limit=limit)


# Who hears of it.


async def test_workers_in_this_process_look_at_once(app: App):
    heard = []
    app.on_news(lambda: heard.append(True))
    await app.limits.set("global", "1/s")
    await app.limits.slow_down("global", MINUTE)
    assert len(heard) == 1  # nothing opens by that
    await app.limits.resume("global")
    await app.limits.remove("global")
    assert len(heard) == 3


@pytest.mark.direct("LISTEN needs a session")
@pytest.mark.parametrize("change", ["set", "remove", "resume"])
async def test_workers_elsewhere_are_told(app: App, database_url: str, change: str):
    await app.limits.set("global", "1/s")
    await app.limits.slow_down("global", MINUTE)
    changes = {
        "set": lambda: app.limits.set("global", "5/s"),
        "remove": lambda: app.limits.remove("global"),
        "resume": lambda: app.limits.resume("global"),
    }
    news = [anyio.Event(), anyio.Event()]
    heard = iter(news)
    elsewhere = App(database_url)
    async with elsewhere, anyio.create_task_group() as group:
        group.start_soon(elsewhere.store.watch, lambda *_: next(heard, anyio.Event()).set())
        with anyio.fail_after(DEADLINE_S):
            await news[0].wait()  # it watches
            await changes[change]()
            await news[1].wait()
        group.cancel_scope.cancel()


async def test_the_same_from_synchronous_code(app: App, clock: ManualClock):
    def work() -> None:
        limits = app.sync.limits
        limit = limits.set("key:acme", "10/s", pool=1)
        assert limits.get("key:acme") == limit
        assert limits.list() == []
        assert limits.list(keys=True) == [limit]
        assert limits.count_keys() == 1
        assert limits.slow_down("key:acme", MINUTE, reason="429").slow_until == clock.now() + MINUTE
        assert limits.resume("key:acme")
        assert limits.remove("key:acme")
        with pytest.raises(InvalidRate):
            limits.set("key:acme", "10")
        app.sync.close()

    await anyio.to_thread.run_sync(work)
