"""The workload of the HTTP API: what a call costs, however many actions there are."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.measuring import Figure, Measured, Run, run_loop
from benchmarks.parts import installed
from benchmarks.staging import LATER, stage
from matrixsched.web import dashboard

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
    Asked("replace", "PUT", "/actions/own-{n}", ACTION),
    Asked("get", "GET", "/actions/own-{n}?payload=true"),
    Asked("explain", "GET", "/actions/own-{n}/explain"),
    Asked("history", "GET", "/actions/own-{n}/history"),
    Asked("next runs", "GET", "/actions/own-{n}/next-runs"),
    Asked("reschedule", "POST", "/actions/own-{n}/reschedule", {"delay": "2d"}),
    Asked("run now", "POST", "/actions/own-{n}/run-now"),
    Asked("cancel", "POST", "/actions/own-{n}/cancel"),
    Asked("list", "GET", "/actions?limit=100"),
    Asked("list, nothing fits", "GET", "/actions?handler=nobody"),
    Asked("list, a prefix", "GET", "/actions?prefix=future-12345"),
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


def web_api(run: Run) -> Measured:
    """95th percentile of each call of the HTTP API, one at a time, with a million actions that are not due yet"""
    took_s: dict[str, list[float]] = {asked.name: [] for asked in REQUESTS}
    refused: list[str] = []

    async def prepare() -> None:
        async with installed(run) as app:
            await app.templates.set("promo")
            await app.semaphores.get_or_create("pool")
            await app.queues.storage.put(1, b"task")

    async def work() -> None:
        app = run.place.app()
        app.action("count")(_ignore)
        site = httpx.ASGITransport(dashboard(app))
        async with app, httpx.AsyncClient(transport=site, base_url=f"http://127.0.0.1{PREFIX}", timeout=60) as client:
            for number in range(-run.scale.web_warm_up, run.scale.web_calls):
                for asked in REQUESTS:
                    begun = time.perf_counter()
                    answer = await client.request(asked.method, asked.path.format(n=number), json=asked.body)
                    elapsed_s = time.perf_counter() - begun
                    if not answer.is_success:
                        refused.append(f"{asked.name}: {answer.status_code} {answer.text}")
                    if number >= 0:
                        took_s[asked.name].append(elapsed_s)
        await app.close()

    run_loop(prepare)
    stage(run, run.scale.future, "future", ahead=LATER)
    run.place.settle()
    run_loop(work)
    figures = [Figure(name, p95(times_s) * 1000, "ms") for name, times_s in took_s.items()]
    return Measured([Figure("worst p95", max(one.value for one in figures), "ms"), *figures], refused[:5])


def p95(times_s: Sequence[float]) -> float:
    return sorted(times_s)[max(0, math.ceil(0.95 * len(times_s)) - 1)]


async def _ignore(number: int) -> None: ...
