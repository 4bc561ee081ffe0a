"""Inline: what is scheduled for now runs before the call returns, and what fails is raised there."""

from datetime import timedelta

import pytest
from support.drivers import engine_of_either

from matrixsched import Cancel, Retry, call
from matrixsched.testing import stage

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
TEA = {"user_id": 1}


@pytest.fixture
def on(program, place):
    with stage(program.app, url=place, inline=True) as staged:
        yield staged


async def test_what_is_scheduled_for_now_has_run_when_the_call_returns(on, program):
    scheduled = await program.app.schedule("remind", TEA)
    assert program.said == [("tea", on.now)]
    assert [ran.id for ran in on.ran] == [scheduled.id]


async def test_what_is_scheduled_for_later_waits(on, program):
    await program.app.schedule("remind", TEA, id="r", delay=DAY)
    assert program.said == []
    await on.advance(DAY)
    assert program.said == [("tea", on.now)]


async def test_what_a_handler_raises_is_raised_by_the_call_and_recorded_all_the_same(on, program):
    program.broken = True
    with pytest.raises(ConnectionError, match="the mail server is away") as raised:
        await program.app.schedule("remind", TEA, id="r")
    assert raised.traceback[-1].name == "tell", "the trace leads to the handler"
    status = (await program.app.get("r")).status
    assert (status.state, status.failed) == ("live", 1)
    program.broken = False
    assert [ran.outcome for ran in await on.run_until_idle()] == ["succeeded"]


async def test_changes_run_at_once_too(on, program):
    await program.app.schedule("remind", TEA, id="r", delay=DAY)
    await program.app.run_now("r")
    assert len(program.said) == 1


async def test_many_calls_and_many_errors(on, program):
    await program.app.schedule_many(call("remind", TEA, id=f"r{n}") for n in range(3))
    assert len(program.said) == 3
    program.broken = True
    with pytest.raises(BaseExceptionGroup, match="several handlers failed") as raised:
        await program.app.schedule_many(call("remind", TEA, id=f"b{n}") for n in range(2))
    assert [type(error) for error in raised.value.exceptions] == [ConnectionError] * 2


def test_from_synchronous_code(on, program):
    program.app.sync.schedule("remind", TEA, id="r")
    program.app.sync.schedule("remind_from_thread", TEA, id="s")
    assert len(program.said) == 2
    program.broken = True
    with pytest.raises(ConnectionError):
        program.app.sync.schedule("remind", TEA, id="r")


async def test_what_a_handler_schedules_for_now_runs_inside_of_it(on, program):
    order = []

    @program.app.action("outer")
    async def outer() -> None:
        order.append("begin")
        await program.app.schedule(inner, id="inner")
        order.append("end")

    @program.app.action("inner")
    async def inner() -> None:
        order.append("inner")

    await program.app.schedule(outer, id="outer")
    assert order == ["begin", "inner", "end"]
    assert [ran.id for ran in on.ran] == ["inner", "outer"]


def test_a_thread_may_schedule_inline_too(on, program):
    @program.app.action("outer")
    def outer() -> None:
        program.app.sync.schedule("remind", TEA, id="inner")
        assert len(program.said) == 1

    on.app.sync.schedule(outer, id="outer")
    assert [(ran.id, ran.outcome) for ran in on.ran] == [("inner", "succeeded"), ("outer", "succeeded")]


async def test_an_outcome_that_is_no_failure_raises_nothing(on, program):
    @program.app.action("pointless", retry=Retry(max_attempts=1))
    async def pointless() -> Cancel:
        return Cancel("nobody wants it")

    await program.app.schedule(pointless, id="p")
    on.assert_ran(pointless, outcome="cancelled")


def test_what_is_part_of_a_callers_transaction_waits_for_its_commit(program, database_url):
    engine = engine_of_either(database_url)
    try:
        with stage(program.app, url=database_url, inline=True) as on:
            with engine.begin() as connection:
                program.app.sync.schedule("remind", TEA, id="r", connection=connection)
                assert program.said == []
            on.sync.run_due()
            assert len(program.said) == 1
    finally:
        engine.dispose()
