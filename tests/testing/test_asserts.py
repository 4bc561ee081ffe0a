"""Asserts on what is scheduled and what ran; each failure says what is there instead."""

from datetime import timedelta
from textwrap import dedent

import pytest
from pydantic import BaseModel

from matrixsched import App
from matrixsched.errors import BadInput, InvalidPayload, UnknownHandler
from matrixsched.testing import stage

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)


class Letter(BaseModel):
    to: str


@pytest.fixture
def app():
    app = App("postgresql://nowhere.invalid/x")

    @app.action("send")
    async def send(letter: Letter) -> None: ...

    @app.action("count")
    async def count(number: int | None) -> None:
        raise ValueError("cannot count")

    return app


@pytest.fixture
async def on(app, place):
    with stage(app, url=place) as staged:
        await app.schedule("send", Letter(to="ann"), id="s:1", delay=DAY)
        await app.schedule("send", Letter(to="bob"), id="s:2", delay=2 * DAY)
        await app.schedule("count", 7, id="c", delay=3 * DAY)
        yield staged


def said_by(assertion, *arguments, **options) -> str:
    with pytest.raises(AssertionError) as raised:
        assertion(*arguments, **options)
    return str(raised.value)


async def test_all_that_is_scheduled_in_the_order_it_runs_with_payloads_as_handlers_get_them(on, app):
    assert [(one.id, one.handler, one.payload, one.at) for one in on.scheduled()] == [
        ("s:1", "send", Letter(to="ann"), on.now + DAY),
        ("s:2", "send", Letter(to="bob"), on.now + 2 * DAY),
        ("c", "count", 7, on.now + 3 * DAY),
    ]
    assert [one.id for one in on.scheduled("count")] == ["c"]
    assert [one.id for one in on.scheduled(app.handlers.named("send"))] == ["s:1", "s:2"]
    assert on.scheduled()[0].action.status.state == "live"


async def test_what_fits_is_found_by_any_part_of_it(on, app):
    assert on.assert_scheduled().id == "s:1"
    assert on.assert_scheduled("send", at=on.now + 2 * DAY).id == "s:2"
    assert on.assert_scheduled(app.handlers.named("send"), payload=Letter(to="bob")).id == "s:2"
    assert on.assert_scheduled("send", payload=Letter(to="ann"), id="s:1", at=on.now + DAY).id == "s:1"
    assert on.assert_scheduled(id="c", payload=7).handler == "count"


async def test_nothing_is_a_payload_like_any_other(on, app):
    assert "its payload is 7" in said_by(on.assert_scheduled, "count", payload=None)
    await app.schedule("count", None, id="none")
    assert on.assert_scheduled("count", payload=None).id == "none"


async def test_a_failure_shows_the_nearest_and_all_the_others(on):
    said = said_by(on.assert_scheduled, "send", id="s:9", at=on.now + 2 * DAY, payload=Letter(to="bob"))
    assert said == dedent("""\
        nothing is scheduled with handler 'send', id 's:9', at 2030-01-03 00:00:00+00:00, payload Letter(to='bob')
        nearest is 's:2': its id is 's:2'
        scheduled at 2030-01-01 00:00:00+00:00:
          's:1' (handler 'send', at 2030-01-02 00:00:00+00:00, payload Letter(to='ann'))
          's:2' (handler 'send', at 2030-01-03 00:00:00+00:00, payload Letter(to='bob'))
          'c' (handler 'count', at 2030-01-04 00:00:00+00:00, payload 7)""")


async def test_nobody_is_nearer_than_the_one_of_that_id(on):
    said = said_by(on.assert_scheduled, "send", id="s:2", at=on.now + DAY, payload=Letter(to="ann"))
    differs = "it runs at 2030-01-03 00:00:00+00:00, 1 day, 0:00:00 later; its payload is Letter(to='bob')"
    assert f"nearest is 's:2': {differs}\n" in said


async def test_a_failure_says_that_the_action_is_finished(on, app):
    await app.cancel("c")
    assert "'c' is cancelled since 2030-01-01 00:00:00+00:00\n" in said_by(on.assert_scheduled, "count", id="c")


async def test_a_failure_on_an_empty_stage(app):
    with stage(app) as on:
        assert said_by(on.assert_scheduled, id="x") == (
            "nothing is scheduled with id 'x'\nnothing at all is scheduled at 2030-01-01 00:00:00+00:00"
        )


async def test_long_lists_are_cut(app):
    with stage(app) as on:
        for number in range(13):
            await app.schedule("count", number, id=f"c{number}")
        said = said_by(on.assert_not_scheduled)
        assert said.startswith("scheduled with anything at all:\n  'c0' (")
        assert said.endswith("\n  and 3 more")


async def test_what_must_not_be_scheduled(on):
    on.assert_not_scheduled("send", id="c")
    on.assert_not_scheduled("count", payload=8)
    on.assert_not_scheduled(id="x")
    assert said_by(on.assert_not_scheduled, "count") == (
        "scheduled with handler 'count':\n  'c' (handler 'count', at 2030-01-04 00:00:00+00:00, payload 7)"
    )


async def test_a_misspelt_handler_is_not_taken_for_one_without_actions(on, app):
    for assertion in (on.assert_scheduled, on.assert_not_scheduled, on.assert_ran, on.scheduled):
        with pytest.raises(UnknownHandler, match="no handler named 'sned'; registered: count, send"):
            assertion("sned")
    await app.schedule("elsewhere", {"a": 1}, id="e")
    assert on.assert_scheduled("elsewhere", payload={"a": 1}).id == "e"


async def test_a_payload_that_the_handler_would_not_take_is_refused(on):
    with pytest.raises(InvalidPayload, match="payload for handler 'send'"):
        on.assert_scheduled("send", payload={"from": "ann"})


async def test_what_is_due_and_was_not_run(on, app):
    on.assert_nothing_due()
    await app.schedule("send", Letter(to="cid"), id="now")
    assert said_by(on.assert_nothing_due) == (
        "due at 2030-01-01 00:00:00+00:00 and not run:\n"
        "  'now' (handler 'send', at 2030-01-01 00:00:00+00:00, payload Letter(to='cid'))"
    )
    await on.run_due()
    on.assert_nothing_due()


async def test_what_ran(on):
    assert said_by(on.assert_ran) == "nothing ran with anything at all; these were made:\n  none"
    await on.advance(3 * DAY)
    assert [ran.id for ran in on.assert_ran("send", times=2)] == ["s:1", "s:2"]
    assert on.assert_ran(id="c", outcome="failed")[0].payload == 7
    on.assert_ran("send", outcome="failed", times=0)
    said = said_by(on.assert_ran, "send", outcome="succeeded", times=1)
    assert said.startswith("2 attempts were made with handler 'send', outcome 'succeeded', 1 were expected; these")
    assert "2030-01-04 00:00:00+00:00  'c' (handler 'count') attempt 1: failed, ValueError: cannot count" in said
    with pytest.raises(BadInput, match="outcome is 'happy', but must be one of succeeded, failed, timed_out"):
        on.assert_ran(outcome="happy")
