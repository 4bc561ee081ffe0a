"""Workloads of `matrixsched serve`: what a call of the API and a page cost, and what it costs to be looked at."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from benchmarks.draining import Drains
from benchmarks.gates import add_gated, zone_of
from benchmarks.measuring import Figure, Measured, Run, run_loop
from benchmarks.places import Place
from benchmarks.staging import AGO, LATER, stage
from benchmarks.statements import SEMAPHORE_TASKS
from benchmarks.tabs import TIMES_AS_OFTEN, Tabs, metering
from matrixsched import Retry
from matrixsched.calls import call
from matrixsched.ops.web.api.values import PAGE_MAX
from matrixsched.ops.web.serving import keep_what_is_there
from matrixsched.rules.queues import NewItem
from matrixsched.web import dashboard
from matrixsched.worker import Worker

PREFIX = "/api/v1"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is sent again and again; `{n}` in its path and id is another number each time."""

    name: str
    method: str
    path: str
    body: Any = None


ACTION = {"handler": "count", "payload": 1, "delay": "1d"}
REQUESTS = (
    Asked("schedule", "POST", "/actions", ACTION),
    Asked("schedule a hundred", "POST", "/bulk/actions/schedule", {"calls": [ACTION] * 100}),
    Asked("replace", "PUT", "/actions/own-{n}", ACTION),
    Asked("get", "GET", "/actions/own-{n}?payload=true"),
    Asked("explain", "GET", "/actions/own-{n}/explain"),
    Asked("history", "GET", "/actions/own-{n}/history"),
    Asked("next runs", "GET", "/actions/own-{n}/next-runs"),
    Asked("reschedule", "POST", "/actions/own-{n}/reschedule", {"delay": "2d"}),
    Asked("run now", "POST", "/actions/own-{n}/run-now"),
    Asked("cancel", "POST", "/actions/own-{n}/cancel"),
    Asked("list", "GET", "/actions?limit=100"),
    Asked("list, a long page", "GET", f"/actions?limit={PAGE_MAX}"),
    Asked("list, a long page of failed", "GET", f"/actions?state=failed&limit={PAGE_MAX}"),
    Asked("list, nothing fits", "GET", "/actions?handler=nobody"),
    Asked("list, a prefix", "GET", "/actions?prefix=future-12345"),
    Asked("list, failed", "GET", "/actions?state=failed"),
    Asked("overview", "GET", "/overview"),
    Asked("workers", "GET", "/workers"),
    Asked("shards", "GET", "/shards"),
    Asked("audit", "GET", "/audit"),
    Asked("templates", "GET", "/templates"),
    Asked("template", "GET", "/templates/promo"),
    Asked("set template", "PUT", "/templates/promo", {"weight": 2}),
    Asked("quota", "GET", "/quota"),
    Asked("plan", "GET", "/plan"),
    Asked("limits", "GET", "/limits"),
    Asked("set limit", "PUT", "/limits/global", {"rate": "10000/s"}),
    Asked("semaphores", "GET", "/semaphores"),
    Asked("semaphore", "GET", "/semaphores/pool"),
    Asked("enqueue", "POST", "/semaphores/pool/tasks", {"tasks": [{"id": "task", "priority": 1}]}),
    Asked("queues", "GET", "/queues"),
    Asked("put", "POST", "/queues/1/tasks", {"tasks": [{"base64": "AA=="}]}),
    Asked("document", "GET", "/openapi.json"),
)


PAGES = (
    Asked("overview", "GET", "/"),
    Asked("actions", "GET", "/actions"),
    Asked("actions, nothing fits", "GET", "/actions?handler=nobody"),
    Asked("actions, a prefix", "GET", "/actions?q=future-12345"),
    Asked("actions, of a template", "GET", "/actions?template=promo"),
    Asked("actions, failed", "GET", "/actions?state=failed"),
    Asked("action", "GET", "/action?id=own-{n}"),
    Asked("shards", "GET", "/shards"),
    Asked("templates", "GET", "/templates"),
    Asked("template", "GET", "/template?name=promo"),
    Asked("limits", "GET", "/limits"),
    Asked("semaphores", "GET", "/semaphores"),
    Asked("semaphore", "GET", "/semaphore?key=pool"),
    Asked("queues", "GET", "/queues"),
    Asked("queue", "GET", "/queue?queue=1"),
    Asked("audit", "GET", "/audit"),
    Asked("a question", "GET", "/change/cancel?id=own-{n}"),
    Asked("a question about many", "GET", "/change/bulk_cancel?template=promo"),
)
MANY = 100
BULK = (
    Asked("schedule", "POST", "/bulk/actions/schedule", {"calls": [ACTION | {"id": f"many-{n}"} for n in range(MANY)]}),
    Asked("run now", "POST", "/bulk/actions/run-now", {"ids": [f"many-{n}" for n in range(MANY)]}),
    Asked("cancel", "POST", "/bulk/actions/cancel", {"ids": [f"many-{n}" for n in range(MANY)]}),
    Asked("put", "POST", "/queues/1/tasks", {"tasks": [{"base64": "AA=="}] * MANY}),
    Asked("enqueue", "POST", "/semaphores/pool/tasks", {"tasks": [{"id": f"many-{n}"} for n in range(MANY)]}),
    Asked("release", "POST", "/semaphores/pool/release", {"ids": [f"many-{n}" for n in range(MANY)]}),
)
"""Calls about a hundred: judged apart from those about one."""
TURNS = 5
FAILED = 2_000
TASKS = 1_000
TIMES_DUE = 5
"""A look every four seconds needs drains that take several."""


def web_api(run: Run) -> Measured:
    """95th percentile of each call of the HTTP API, one at a time, with a million actions that are not due yet"""
    return _asked_beside_many(run, REQUESTS, PREFIX)


def web_bulk(run: Run) -> Measured:
    """95th percentile of calls of the HTTP API about a hundred each, one at a time, beside the same million actions"""
    return _asked_beside_many(run, BULK, PREFIX)


def web_pages(run: Run) -> Measured:
    """95th percentile of each page of the dashboard, one at a time, with a million actions that are not due yet"""
    return _asked_beside_many(run, PAGES, "")


def _asked_beside_many(run: Run, requests: Sequence[Asked], prefix: str) -> Measured:
    took_s: dict[str, list[float]] = {asked.name: [] for asked in requests}
    refused: list[str] = []

    async def work() -> None:
        app = run.place.app()
        app.action("count")(_ignore)
        site = httpx.ASGITransport(dashboard(app))
        async with app, httpx.AsyncClient(transport=site, base_url=f"http://127.0.0.1{prefix}", timeout=60) as client:
            for number in range(-run.scale.web_warm_up, run.scale.web_calls):
                for asked in requests:
                    begun = time.perf_counter()
                    answer = await client.request(asked.method, asked.path.format(n=abs(number)), json=asked.body)
                    elapsed_s = time.perf_counter() - begun
                    if not answer.is_success:
                        refused.append(f"{asked.name}: {answer.status_code} {answer.text}")
                    if number >= 0:
                        took_s[asked.name].append(elapsed_s)

    _furnish(run)
    keep_what_is_there()
    run_loop(work)
    figures = [Figure(name, p95(times_s) * 1000, "ms") for name, times_s in took_s.items()]
    return Measured([Figure("worst p95", max(one.value for one in figures), "ms"), *figures], refused[:5])


def _furnish(run: Run) -> None:
    """A million actions: most of the future, a tenth held by the quota, a hundredth due, some of them failed."""
    many = run.scale.future
    held, due = many // 10, many // 100
    own = max(run.scale.web_calls, run.scale.web_warm_up) + 1

    async def prepare() -> None:
        app = run.place.app()

        @app.action("fail", retry=Retry(max_attempts=1))
        async def fail() -> None:
            raise RuntimeError("on purpose")

        await app.init(shards=run.shards)
        async with app:
            await app.templates.set("promo", max_speed="1/day")
            await app.limits.set("global", "10000/s")
            await app.semaphores.get_or_create("pool")
            await app.queues.storage.put_many(NewItem(queue=1, data=b"task") for _ in range(TASKS))
            await app.schedule_many(call("fail", id=f"failed-{number}") for number in range(min(FAILED, due)))
            await Worker(app).run_due()
            await app.schedule_many(call("count", 1, id=f"own-{n}", delay=LATER) for n in range(own))

    run_loop(prepare)
    stage(run, many - held - due, "future", ahead=LATER)
    add_gated(run, held, "held", template="'promo'", zone=zone_of("n"))
    stage(run, due, "due", ahead=AGO)
    tasks = SEMAPHORE_TASKS[run.place.dialect]
    run.place.ask(tasks.format(prefix="waiting", count=many // 10, state="'waiting'", acquired_at="null", above=0))
    run.place.settle()


@dataclass(frozen=True, slots=True)
class Arm:
    """A drain with tabs beside it, or without."""

    rate: float
    busy: float
    """Processors at work for it."""
    tabs: Tabs | None = None

    @property
    def per_processor(self) -> float:
        """Actions for a second of a processor, which others on the machine disturb less than the rate."""
        return self.rate / self.busy


def drain_watched(run: Run) -> Measured:
    """what five open tabs of the dashboard take of a drain: processor time, theirs and what it uses more; its rate"""
    longer = replace(run, scale=replace(run.scale, due=run.scale.due * TIMES_DUE))
    drains = Drains(longer, turns=2 * TURNS)
    drains.prepare()
    pairs = [_pair(drains, run.place, watched_first=bool(turn % 2)) for turn in range(TURNS)]
    opened = [watched.tabs for watched, _ in pairs if watched.tabs is not None]
    figures = [
        Figure("cost", statistics.median(cost_of(watched, alone) for watched, alone in pairs), "%"),
        Figure("rate", statistics.median(watched.rate for watched, _ in pairs), "/s"),
        Figure("to none", statistics.median(watched.rate / alone.rate for watched, alone in pairs), "share"),
        Figure("looks", sum(tabs.looks for tabs in opened) / sum(tabs.open_s for tabs in opened), "/s"),
        Figure("tabs", statistics.median(100 * tabs.busy for tabs in opened), "%"),
        Figure("drain", statistics.median(100 * watched.busy for watched, _ in pairs), "%"),
    ]
    return Measured(figures, [*drains.violations(), *check_all_shown(opened)])


def _pair(drains: Drains, place: Place, *, watched_first: bool) -> tuple[Arm, Arm]:
    """In one installation and next to each other: drains that are not differ by more than tabs can take."""
    arms = {is_watched: _arm(drains, place, is_watched) for is_watched in (watched_first, not watched_first)}
    return arms[True], arms[False]


def _arm(drains: Drains, place: Place, is_watched: bool) -> Arm:
    drains.schedule()
    if is_watched:
        with Tabs.of(place) as tabs:
            drains.drain()
        return Arm(drains.rates[-1], tabs.drain_busy, tabs)
    with metering(place) as meter:
        drains.drain()
    return Arm(drains.rates[-1], meter.busy("drain"))


def cost_of(watched: Arm, alone: Arm) -> float:
    """In percent of the drain: what it needs more for each action, and what the tabs need, when they look as often as
    pages do."""
    assert watched.tabs is not None
    needs_more = alone.per_processor / watched.per_processor - 1
    return 100 * (needs_more + watched.tabs.busy / watched.busy) / TIMES_AS_OFTEN


def check_all_shown(opened: Sequence[Tabs]) -> list[str]:
    looks, failures = sum(one.looks for one in opened), sum(one.failures for one in opened)
    if looks and not failures:
        return []
    return [f"{failures} of {looks} looks at pages were refused"]


def p95(times_s: Sequence[float]) -> float:
    return sorted(times_s)[max(0, math.ceil(0.95 * len(times_s)) - 1)]


async def _ignore(number: int) -> None: ...
