"""A handler that is told to slow down (HTTP 429) slows down the whole fleet, on both databases."""

from __future__ import annotations

from datetime import timedelta

import pytest

from matrixsched import App, Outcome, Retry, SlowDown, State, retry_after
from matrixsched.clock import ManualClock
from matrixsched.events import SlowDownTold, StepFailed
from matrixsched.rules.limits import Closed
from matrixsched.rules.rates import parse_rate
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class Service:
    """Answers 429 as often as it was told to, then takes everything."""

    def __init__(self, app: App, *answers: SlowDown) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

        @app.action("send")
        async def send(to: str) -> SlowDown | None:
            self.asked.append(to)
            return self._answers.pop(0) if self._answers else None


async def status(app: App, id: str):
    return (await app.get(id)).status


async def test_the_handler_is_closed_for_all_workers_until_then(app: App, clock: ManualClock):
    service = Service(app, SlowDown(clock.now() + MINUTE, reason="HTTP 429"))
    await app.schedule("send", "ann", id="ann")
    assert await Worker(app).run_due() == 1
    after = await status(app, "ann")
    assert (after.state, after.last_outcome, after.last_error) == (State.LIVE, Outcome.RETRIED, "HTTP 429")
    assert (after.deferred, after.failed, after.scheduled_at) == (1, 0, clock.now() + MINUTE)
    limit = await app.limits.get("handler:send")
    assert limit.effective(clock.now()) == Closed(clock.now() + MINUTE)
    assert limit.slow_reason == "HTTP 429"

    await app.schedule("send", "bob", id="bob")
    assert await Worker(app).run_due() == 0
    clock.advance(MINUTE)
    assert await Worker(app).run_due() == 2
    assert sorted(service.asked) == ["ann", "ann", "bob"]
    assert (await status(app, "bob")).state is State.DONE


async def test_it_is_told_to_whoever_watches(app: App, clock: ManualClock):
    told: list[SlowDownTold] = []
    app.events.subscribe(SlowDownTold, told.append)
    Service(app, SlowDown(MINUTE, rate="2/s"))
    await app.schedule("send", "ann", id="ann")
    await Worker(app).run_due()
    assert told == [SlowDownTold("handler:send", clock.now() + MINUTE, parse_rate("2/s"))]


async def test_others_go_on_meanwhile(app: App):
    Service(app, SlowDown(MINUTE))
    ran = []

    @app.action("other")
    async def other() -> None:
        ran.append(True)

    await app.schedule("send", "ann")
    await Worker(app).run_due()
    await app.schedule("send", "bob")
    await app.schedule("other")
    assert await Worker(app).run_due() == 1
    assert ran == [True]


async def test_an_action_with_a_key_closes_its_key_and_no_other(app: App, clock: ManualClock):
    service = Service(app, SlowDown(MINUTE))
    await app.schedule("send", "ann", limit="acme")
    await Worker(app).run_due()
    assert (await app.limits.get("key:acme")).effective(clock.now()) == Closed(clock.now() + MINUTE)
    await app.schedule("send", "bob", limit="acme")
    await app.schedule("send", "cid", limit="other")
    await app.schedule("send", "dan")
    await Worker(app).run_due()
    assert sorted(service.asked) == ["ann", "cid", "dan"]


async def test_another_limit_can_be_named_and_slowed_to_a_rate(app: App, clock: ManualClock):
    Service(app, SlowDown(MINUTE, limit="global", rate="5/min"))
    await app.schedule("send", "ann")
    await Worker(app).run_due()
    assert (await app.limits.get("global")).effective(clock.now()) == parse_rate("5/min")


async def test_whoever_names_a_template_that_is_not_there_is_told_so_and_tried_again(app: App, clock: ManualClock):
    failed: list[StepFailed] = []
    app.events.subscribe(StepFailed, failed.append)
    Service(app, SlowDown(MINUTE, limit="template:news"))
    await app.schedule("send", "ann", id="ann")
    await Worker(app).run_due()
    (told,) = failed
    assert told.step == "slow_down"
    assert told.error.startswith("UnknownTemplate: there is no template 'news'")
    after = await status(app, "ann")
    assert (after.state, after.last_outcome, after.scheduled_at) == (State.LIVE, Outcome.RETRIED, clock.now() + MINUTE)


AT_ONCE = ["0", "0.01", "Wed, 21 Oct 2015 07:28:00 GMT"]


@pytest.mark.parametrize("header", AT_ONCE)
async def test_told_to_come_again_at_once_all_wait_for_a_second(app: App, clock: ManualClock, header: str):
    service = Service(app, SlowDown(retry_after(header)))
    await app.schedule("send", "ann", id="ann")
    await Worker(app).run_due()
    assert (await status(app, "ann")).scheduled_at == clock.now() + SECOND
    assert (await app.limits.get("handler:send")).effective(clock.now()) == Closed(clock.now() + SECOND)
    await app.schedule("send", "bob", id="bob")
    clock.advance(0.99 * SECOND)
    assert await Worker(app).run_due() == 0
    clock.advance(0.01 * SECOND)
    assert await Worker(app).run_due() == 2
    assert sorted(service.asked) == ["ann", "ann", "bob"]


@pytest.mark.parametrize("header", AT_ONCE)
async def test_one_that_is_told_so_for_ever_is_tried_at_the_pace_of_its_retries(stage, header: str):
    tried: list[timedelta] = []
    start = stage.now

    @stage.app.action("send", retry=Retry(max_attempts=1, first_delay=10 * SECOND, jitter=0))
    async def send() -> SlowDown:
        tried.append(stage.now - start)
        return SlowDown(retry_after(header))

    await stage.app.schedule("send")
    await stage.advance(MINUTE)
    assert tried == [n * 10 * SECOND for n in range(7)]


async def test_a_wrong_outcome_is_a_failure_of_the_handler(app: App):
    @app.action("wrong")
    async def wrong() -> SlowDown:
        return SlowDown(MINUTE, limit="promo")

    await app.schedule(wrong, id="w")
    await Worker(app).run_due()
    after = await status(app, "w")
    assert after.last_outcome is Outcome.FAILED
    assert "did you mean" in (after.last_error or "")


async def test_a_limit_that_cannot_be_told_costs_nothing_but_the_telling(app: App, clock: ManualClock):
    failures: list[StepFailed] = []
    app.events.subscribe(StepFailed, failures.append)
    Service(app, SlowDown(MINUTE, limit="template:none"))
    await app.schedule("send", "ann", id="ann")
    await Worker(app).run_due()
    after = await status(app, "ann")
    assert (after.last_outcome, after.scheduled_at) == (Outcome.RETRIED, clock.now() + MINUTE)
    assert [(one.step, "UnknownTemplate" in one.error) for one in failures] == [("slow_down", True)]


@pytest.mark.parametrize("fault", ["fail", "lose_request", "lose_answer"])
async def test_a_database_that_fails_does_not_lose_the_outcome(stage, fault: str):
    failures: list[StepFailed] = []
    stage.app.events.subscribe(StepFailed, failures.append)
    Service(stage.app, SlowDown(MINUTE))
    await stage.app.schedule("send", "ann", id="ann")
    getattr(stage.faults, fault)("slow_down")
    (ran,) = await stage.run_due()
    assert ran.outcome is Outcome.RETRIED
    assert (await status(stage.app, "ann")).scheduled_at == stage.now + MINUTE
    assert [one.step for one in failures] == ["slow_down"]
