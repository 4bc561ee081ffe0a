"""Messages of templates, from schedule to handler: they go by their share, and what is held stays as it is."""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from support.scene import Scene

from matrixsched import App, Context, State, call
from matrixsched.clock import ManualClock
from matrixsched.rules.templates import Template
from matrixsched.worker import Worker
from matrixsched.worker.policy import WorkerPolicy

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
STEP = timedelta(seconds=1)


@pytest.fixture
def sent(app: App) -> Counter[str]:
    """How many messages of each template were sent."""
    sent: Counter[str] = Counter()

    @app.action("send")
    async def send(template: str) -> None:
        sent[template] += 1

    return sent


async def limit(app: App, clock: ManualClock, per_minute: int) -> None:
    """A limit whose pool is full, so that only the quota keeps messages from going at once."""
    await app.limits.set("global", f"{per_minute}/min", pool=per_minute)
    clock.advance(10 * MINUTE)


async def fill(app: App, template: str, count: int, **options: object) -> None:
    await app.schedule_many(call("send", template, template=template, **options) for _ in range(count))


async def move_all(app: App) -> None:
    """Let all messages come before their gate before a window is planned: it counts only those that are there."""
    names = [template.name for template in await app.templates.list()]
    for name in names:
        await app.templates.pause(name)
    await Worker(app).run_due()
    for name in names:
        await app.templates.resume(name)


async def pass_time(app: App, clock: ManualClock, duration: timedelta) -> None:
    """Let a worker look every second."""
    worker = Worker(app)
    for _ in range(duration // STEP):
        await worker.run_due()
        clock.advance(STEP)


async def test_templates_share_each_window(app: App, clock: ManualClock, sent: Counter[str]):
    await limit(app, clock, 12)
    for template, weight in (("promo", 2), ("news", 1), ("bill", 1)):
        await app.templates.set(template, weight=weight)
        await fill(app, template, 20)
    await move_all(app)
    await pass_time(app, clock, MINUTE)
    assert sent == {"promo": 6, "news": 3, "bill": 3}
    await pass_time(app, clock, MINUTE)
    assert sent == {"promo": 12, "news": 6, "bill": 6}


async def test_messages_go_first_where_it_is_the_right_time_of_the_day(
    app: App, clock: ManualClock, sent: Counter[str]
):
    # It is midnight in UTC: nine in the morning in Tokyo, one at night in Berlin.
    await limit(app, clock, 10)
    await app.templates.set("promo", distribution="morning")
    await fill(app, "promo", 8, zone="Asia/Tokyo")
    await fill(app, "promo", 8, zone="Europe/Berlin")
    await move_all(app)
    await pass_time(app, clock, MINUTE)
    zones = Counter(action.spec.zone for action in await app.list(state=State.DONE))
    assert zones == {"Asia/Tokyo": 8, "Europe/Berlin": 2}


async def test_a_paused_template_stands_still_at_once_and_in_nobodys_way(
    app: App, clock: ManualClock, sent: Counter[str]
):
    await limit(app, clock, 20)
    await app.templates.set("promo")
    await app.templates.set("news")
    await fill(app, "promo", 30)
    await fill(app, "news", 30)
    await move_all(app)

    pauses: list[Template] = []

    @app.middleware
    async def pause_after_three(context: Context, call_next: Callable[[], Awaitable[object]]) -> object:
        answer = await call_next()
        if sent["promo"] == 3 and not pauses:
            pauses.append(await app.templates.pause("promo", timedelta(minutes=2)))
        return answer

    await Worker(app, WorkerPolicy(concurrency=2)).run_due()
    before = sent["promo"]
    assert 3 <= before <= 5  # what was claimed by then is sent
    await pass_time(app, clock, MINUTE)
    assert sent == {"promo": before, "news": 10}
    await pass_time(app, clock, MINUTE)
    assert sent == {"promo": before, "news": 30}
    waiting = await app.list(state=State.LIVE, template="promo", limit=1000)
    assert {action.status.attempts_started for action in waiting} == {0}
    await pass_time(app, clock, MINUTE)
    assert sent["promo"] > before


async def test_a_pause_that_is_given_an_earlier_end_ends_then(app: App, clock: ManualClock, sent: Counter[str]):
    await app.templates.set("promo")
    await app.templates.pause("promo", until=timedelta(hours=2))
    await fill(app, "promo", 3)
    await Worker(app).run_due()
    await app.templates.pause("promo", until=10 * STEP)
    await pass_time(app, clock, 12 * STEP)
    assert sent == {"promo": 3}


async def test_a_template_that_is_resumed_goes_on(app: App, clock: ManualClock, sent: Counter[str]):
    await app.templates.set("promo")
    await app.templates.pause("promo")
    await fill(app, "promo", 3)
    await pass_time(app, clock, MINUTE)
    assert sent == {}
    await app.templates.resume("promo")
    await pass_time(app, clock, timedelta(seconds=5))
    assert sent == {"promo": 3}


async def test_nothing_of_a_campaign_that_was_stopped_is_sent(app: App, clock: ManualClock, sent: Counter[str]):
    await limit(app, clock, 5)
    for template in ("promo", "news"):
        await app.templates.set(template)
        await fill(app, template, 10)
    await pass_time(app, clock, timedelta(seconds=30))
    so_far = sent["promo"]
    assert await app.templates.stop("promo") == 10 - so_far
    await pass_time(app, clock, 3 * MINUTE)
    assert sent == {"promo": so_far, "news": 10}


async def test_messages_of_a_template_that_is_gone_wait_until_it_is_back(
    app: App, clock: ManualClock, sent: Counter[str]
):
    await app.templates.set("promo")
    await fill(app, "promo", 2)
    await Scene(app.store, clock).sql("delete from matrixsched.templates")
    await pass_time(app, clock, MINUTE)
    assert sent == {}
    await app.templates.set("promo")
    await pass_time(app, clock, MINUTE)
    assert sent == {"promo": 2}


async def test_expired_messages_are_not_sent_and_spend_nothing(app: App, clock: ManualClock, sent: Counter[str]):
    await limit(app, clock, 2)
    await app.templates.set("promo")
    await fill(app, "promo", 5, expires_at=clock.now() + timedelta(minutes=1))
    await move_all(app)
    await fill(app, "promo", 2, delay=timedelta(seconds=90))
    await pass_time(app, clock, 4 * MINUTE)
    await app.store.run(app.store.transitions.expire_waiting(limit=10))
    states = Counter(action.status.state for action in await app.list())
    assert states == {State.DONE: 4, State.EXPIRED: 3}
