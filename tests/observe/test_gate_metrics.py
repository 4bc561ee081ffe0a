"""What can be scraped about gates: what they hold back, how much is left, and what went to waste."""

from __future__ import annotations

import io
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from matrixsched import App, Retry
from matrixsched.clock import ManualClock
from matrixsched.events import (
    GatesSampled,
    SlotsVoided,
    SlowDownTold,
    TemplatePaused,
    TemplateResumed,
    Tidied,
    WindowPlanned,
)
from matrixsched.observe import Metrics
from matrixsched.observe.labels import LABELS_MAX
from matrixsched.observe.logs import Logs, log_to, logger
from matrixsched.observe.metrics import FOLDER_VARIABLE, exposition_of
from matrixsched.rules.gate_report import GateReport, Share
from matrixsched.rules.gates import Gate
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
SECRET = "canary"


@pytest.fixture
def app(app: App) -> App:
    @app.action("send")
    async def send() -> None: ...

    @app.action("refuse", retry=Retry(max_attempts=1))
    async def refuse() -> None:
        raise PermissionError(SECRET)

    return app


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Everything logged, also at the lowest level."""
    before = (logger.handlers[:], logger.level, logger.propagate)
    stream = io.StringIO()
    log_to(stream, level=logging.DEBUG)
    yield stream
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def scraped(metrics: Metrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def held(found: dict[str, float]) -> dict[str, float]:
    """By gate and template, those that hold anything."""
    prefix = "matrixsched_held_actions{"
    return {name.removeprefix(prefix)[:-1]: value for name, value in found.items() if name.startswith(prefix) and value}


# On a database.


async def test_what_limits_hold_back_and_what_is_left_of_them(app: App, clock: ManualClock) -> None:
    await app.limits.set("handler:send", "1/min", pool=3)
    await app.limits.set("key:*", "1/h")
    clock.advance(HOUR)
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    for _ in range(5):
        await app.schedule("send")
    for _ in range(3):
        await app.schedule("refuse", limit="acme")
    await worker.sampling.gates()
    assert scraped(metrics)['matrixsched_limit_slots_left{limit="handler:send"}'] == 3
    await worker.run_due()
    await worker.sampling.gates()
    found = scraped(metrics)
    assert held(found) == {'gate="limit",template=""': 4}
    assert found['matrixsched_limit_slots_left{limit="handler:send"}'] == 0
    assert not [name for name in found if "acme" in name or "key:" in name]
    clock.advance(HOUR)
    await worker.sampling.gates()
    assert held(scraped(metrics)) == {'gate="open",template=""': 4}, "their slots have come, and a worker has not"
    await app.limits.remove("handler:send")
    while await worker.run_due():
        clock.advance(HOUR)
    await worker.sampling.gates()
    found = scraped(metrics)
    assert held(found) == {}
    assert math.isnan(found['matrixsched_limit_slots_left{limit="handler:send"}']), "0 would be a limit that is used up"


async def test_slow_downs_are_counted_and_seen_while_they_last(app: App, clock: ManualClock) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    await app.limits.slow_down("handler:send", MINUTE, reason=SECRET)
    await app.limits.slow_down("key:acme", MINUTE)
    await app.limits.slow_down("key:bolt", MINUTE)
    await app.schedule("send")
    await worker.run_due()
    await worker.sampling.gates()
    found = scraped(metrics)
    assert found['matrixsched_slow_downs_total{limit="handler:send"}'] == 1
    assert found['matrixsched_slow_downs_total{limit="key"}'] == 2
    assert found['matrixsched_limit_slowed{limit="handler:send"}'] == 1
    assert held(found) == {'gate="slowed",template=""': 1}
    clock.advance(MINUTE)
    await worker.sampling.gates()
    assert scraped(metrics)['matrixsched_limit_slowed{limit="handler:send"}'] == 0


async def test_how_the_quota_is_used(app: App, clock: ManualClock) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    await app.limits.set("global", "10/min", pool=20)
    clock.advance(HOUR)
    for template in ("promo", "news", "quiet"):
        await app.templates.set(template)
    for number in range(40):
        await app.schedule("send", template="promo" if number % 2 else "news")
    await app.schedule("send", template="quiet")
    await app.templates.pause("quiet")
    await worker.run_due()
    await worker.sampling.gates()
    found = scraped(metrics)
    granted = found['matrixsched_quota_granted{template="promo",window="present"}']
    assert 0 < granted < 20
    assert found['matrixsched_quota_used{template="promo",window="present"}'] == granted
    assert found['matrixsched_template_attempts_total{outcome="succeeded",template="promo"}'] == granted
    assert found["matrixsched_templates_paused"] == 1
    assert found["matrixsched_quota_windows_planned_total"] == 1
    assert held(found) == {
        'gate="quota",template="promo"': 20 - granted,
        'gate="quota",template="news"': 20 - found['matrixsched_quota_used{template="news",window="present"}'],
        'gate="paused",template="quiet"': 1,
    }
    clock.advance(MINUTE)
    await worker.sampling.gates()
    found = scraped(metrics)
    assert found['matrixsched_quota_used{template="promo",window="last"}'] == granted
    assert found['matrixsched_quota_used{template="promo",window="present"}'] == 0
    assert held(found)['gate="unplanned",template="promo"'] == 20 - granted


async def test_a_claim_that_came_too_late_for_its_slot_has_spent_its_share(app: App, clock: ManualClock) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    await app.limits.set("global", "1/s")
    await app.templates.set("promo")
    clock.advance(HOUR)
    await app.schedule("send", template="promo")
    while not worker.runner.has_waiting:
        await worker.intake.step()
    clock.advance(SECOND)
    await worker.runner.run_next()
    await worker.runner.watch()
    await worker.sampling.gates()
    found = scraped(metrics)
    assert found["matrixsched_slots_void_total"] == 1
    assert found['matrixsched_quota_used{template="promo",window="present"}'] == 1
    assert not [name for name in found if name.startswith("matrixsched_template_attempts_total")], "nothing was sent"
    text = generate_latest(metrics.registry).decode()
    (help,) = [line for line in text.splitlines() if line.startswith("# HELP matrixsched_quota_used")]
    assert "spent" in help


async def test_what_expires_unsent_is_counted_by_its_template_however_it_is_found(app: App, clock: ManualClock) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    await app.templates.set("promo")
    await app.templates.pause("promo")
    for _ in range(3):
        await app.schedule("send", template="promo", expires_at=clock.now() + SECOND)
    await app.schedule("send", expires_at=clock.now() + SECOND)
    await worker.run_due()
    clock.advance(2 * SECOND)
    await worker.tidying.step()
    assert scraped(metrics)['matrixsched_expired_unsent_total{template="promo"}'] == 3
    await app.templates.resume("promo")
    await app.schedule("send", template="promo", expires_at=clock.now() + SECOND)
    await worker.intake.step()  # claimed in time, …
    clock.advance(SECOND)
    while worker.runner.has_waiting:
        await worker.runner.run_next()  # … and not started in time
    found = scraped(metrics)
    assert found['matrixsched_expired_unsent_total{template="promo"}'] == 4
    assert found['matrixsched_template_attempts_total{outcome="expired",template="promo"}'] == 1


async def test_slots_that_nobody_could_use_are_counted(app: App, clock: ManualClock) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    await app.limits.set("global", "10/s", pool=2)
    clock.advance(MINUTE)
    await app.schedule("send")
    await worker.intake.step()
    clock.advance(SECOND)
    while worker.runner.has_waiting:
        await worker.runner.run_next()
    await worker.runner.watch()
    await worker.runner.giving_back.step()
    found = scraped(metrics)
    assert found["matrixsched_slots_void_total"] == 1
    assert found["matrixsched_claims_given_back_total"] == 1


async def test_nobody_looks_while_nobody_listens(app: App) -> None:
    worker = Worker(app)
    before = app.store.pool.served
    assert await worker.sampling.gates() == 15
    assert app.store.pool.served == before
    unsubscribe = app.events.subscribe(GatesSampled, lambda event: None)
    await worker.sampling.gates()
    assert app.store.pool.served == before + 1
    unsubscribe()
    await worker.sampling.gates()
    assert app.store.pool.served == before + 1


async def test_changes_are_told_and_logged_without_what_handlers_said(app: App, lines: io.StringIO) -> None:
    told: list[object] = []
    for kind in (TemplatePaused, TemplateResumed, SlowDownTold, WindowPlanned):
        app.events.subscribe(kind, told.append)
    Logs(app.events)
    worker = Worker(app)
    await app.templates.set("promo")
    await app.templates.pause("promo")
    await app.templates.resume("promo")
    await app.schedule("refuse", template="promo")
    await worker.run_due()
    slowed = await app.limits.slow_down("handler:refuse", MINUTE, rate="1/min", reason=SECRET)
    await worker.sampling.gates()
    assert [type(event) for event in told] == [TemplatePaused, TemplateResumed, WindowPlanned, SlowDownTold]
    assert told[0] == TemplatePaused("promo", None)
    assert told[3] == SlowDownTold("handler:refuse", slowed.slow_until, slowed.slow_rate)  # type: ignore[arg-type]
    text = lines.getvalue()
    for message in (
        "template paused",
        "template resumed",
        "quota window planned",
        "told to slow down",
        "gates sampled",
    ):
        assert message in text
    assert SECRET not in text


# In numbers alone.


def test_templates_and_limits_without_end_are_told_together() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    many = [f"t{number:04}" for number in range(LABELS_MAX + 50)]
    limits = {f"handler:{name}": number for number, name in enumerate(many)}
    app.events.emit(
        GatesSampled(
            GateReport(
                held=dict.fromkeys(((Gate.QUOTA, name) for name in many), 2),
                slots_left=limits,
                shares=[Share(name, True, 10, 5) for name in many],
            )
        )
    )
    app.events.emit(Tidied(0, 0, 0, expired=150, expired_of=dict.fromkeys(many, 1)))
    found = scraped(metrics)
    assert len([name for name in found if name.startswith("matrixsched_held_actions{")]) == LABELS_MAX + 1
    assert found['matrixsched_held_actions{gate="quota",template="other"}'] == 100
    assert found['matrixsched_quota_granted{template="other",window="present"}'] == 500
    assert found['matrixsched_quota_used{template="other",window="present"}'] == 250
    assert found['matrixsched_expired_unsent_total{template="other"}'] == 50
    assert found['matrixsched_limit_slots_left{limit="other"}'] == LABELS_MAX, "that which is nearest to its end"


def test_looking_twice_counts_nothing_twice() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    app.events.emit(SlotsVoided(2))
    app.events.emit(WindowPlanned("host/1", 0.25))
    for _ in range(2):
        found = scraped(metrics)
        assert found["matrixsched_slots_void_total"] == 2
        assert found["matrixsched_quota_windows_planned_total"] == 1
        assert found["matrixsched_quota_planning_seconds_total"] == 0.25


def test_of_what_all_processes_report_alike_the_last_word_counts(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from matrixsched import App\n"
        "from matrixsched.events import GatesSampled\n"
        "from matrixsched.observe import Metrics\n"
        "from matrixsched.rules.gate_report import GateReport\n"
        "from matrixsched.rules.gates import Gate\n"
        "app = App('sqlite://')\n"
        "metrics = Metrics(app)\n"
        "left = {'global': 7, 'handler:send': 1}\n"
        "for gone in sys.argv[2:]:\n"
        "    app.events.emit(GatesSampled(GateReport(slots_left=left)))\n"
        "    del left[gone]\n"
        "app.events.emit(GatesSampled(GateReport(held={(Gate.QUOTA, 'promo'): int(sys.argv[1])}, slots_left=left)))\n"
    )
    for arguments in (["30"], ["20", "handler:send"]):
        shared = os.environ | {FOLDER_VARIABLE: str(tmp_path)}
        subprocess.run([sys.executable, "-W", "error", "-c", program, *arguments], env=shared, check=True)
    lines = exposition_of(str(tmp_path))().decode().splitlines()
    assert 'matrixsched_held_actions{gate="quota",template="promo"} 20.0' in lines
    assert 'matrixsched_limit_slots_left{limit="global"} 7.0' in lines
    assert 'matrixsched_limit_slots_left{limit="handler:send"} NaN' in lines
