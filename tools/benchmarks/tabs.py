"""Tabs of a browser that show the dashboard, and the process that serves it; both ends of the conversation."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import anyio
import httpx
import uvicorn

from benchmarks.children import address_of, beginning, given_app, heard_line, tell
from benchmarks.measuring import run_loop
from benchmarks.places import Place
from benchmarks.processors import Meter
from matrixsched.web import dashboard

TABS = ("/", "/shards", "/templates", "/limits", "/queues")
PAGE_EVERY_S = 4.0
"""As the page says (`data-every`)."""
TIMES_AS_OFTEN = 10
"""Tabs look, and what they cost is divided by it: two in a hundred are less than one drain differs from the next."""
EVERY_S = PAGE_EVERY_S / TIMES_AS_OFTEN
END_MAX_S = 30.0


@dataclass
class Tabs:
    """The parent's end; synchronous, because a drain has an event loop of its own."""

    looks: int = 0
    failures: int = 0
    open_s: float = 0.0
    busy: float = 0.0
    """Processors at work for them: in the process that serves, which is also the browser, and in its sessions."""
    drain_busy: float = 0.0
    """The same of the parent, which drains meanwhile."""

    @classmethod
    @contextlib.contextmanager
    def of(cls, place: Place) -> Iterator[Tabs]:
        """Open until the block ends; then they tell what they did."""
        tabs = cls()
        with begun(place) as process:
            with metering(place, tabs=process.pid) as meter:
                yield tabs
            told, _ = process.communicate(timeout=END_MAX_S)
        if not meter.has_seen_sessions("tabs"):
            raise RuntimeError("no session of the tabs was seen on this machine: their server is another one")
        vars(tabs).update(json.loads(told))
        tabs.busy, tabs.drain_busy = meter.busy("tabs"), meter.busy("drain")


def metering(place: Place, **others: int) -> Meter:
    """Of this process, which drains, and of others."""
    return Meter(place.url, {"drain": os.getpid(), **others})


@contextlib.contextmanager
def begun(place: Place) -> Iterator[subprocess.Popen[str]]:
    command, environment = beginning(__name__)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(address_of(place) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        yield process


async def show() -> None:
    """The process's end."""
    app = given_app()
    app.action("count")(_ignore)
    looks = Looks()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(dashboard(app), log_level="error", access_log=False, ws="none"))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with app, anyio.create_task_group() as serving:
            serving.start_soon(server.serve, [listener])
            async with httpx.AsyncClient(base_url=address) as browser:
                (await browser.get("/")).raise_for_status()
                since = time.monotonic()
                async with anyio.create_task_group() as looking:
                    for number, page in enumerate(TABS):
                        looking.start_soon(_look, browser, looks, page, number * EVERY_S / len(TABS))
                    tell("ready")
                    await heard_line()
                    looking.cancel_scope.cancel()
                looks.open_s = time.monotonic() - since
            server.should_exit = True
    tell(json.dumps(vars(looks)))


@dataclass
class Looks:
    """What the tabs did."""

    looks: int = 0
    failures: int = 0
    open_s: float = 0.0


async def _look(browser: httpx.AsyncClient, looks: Looks, page: str, after_s: float) -> None:
    """As live.js does: out of step with the other looks."""
    await anyio.sleep(after_s)
    while True:
        answer = await browser.get(page, params={"fragment": "all"})
        looks.looks += 1
        looks.failures += not answer.is_success
        await anyio.sleep(EVERY_S)


async def _ignore(number: int) -> None: ...


if __name__ == "__main__":
    run_loop(show)
