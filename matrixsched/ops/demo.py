"""`matrixsched demo`: thousands of actions, two workers, one of them killed half-way, nothing lost.

What is shown as run, lost or taken over comes from notes that the handlers take in a file, not from the database.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Protocol, Self
from uuid import uuid4

from prometheus_client.multiprocess import mark_process_dead
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from matrixsched import App, call, every
from matrixsched.calls import Call
from matrixsched.config import FILE_NAME, FILE_VARIABLE, PREFIX
from matrixsched.errors import MatrixSchedError, WorkerError
from matrixsched.observe.metrics import FOLDER_VARIABLE, exposition_of
from matrixsched.ops import demo_app
from matrixsched.ops.evidence import Account, Evidence
from matrixsched.ops.render import Facts, console, say

SPREAD_S = 10.0
"""Over how long the actions are due."""
KILL_AFTER_S = SPREAD_S / 2
ONE_OFF = {"quick": 2400, "slow": 400, "flaky": 200}
PERIODIC = 5
SHARDS = 16
ATTEMPT_LEASE_S = 3.0
SHARD_LEASE_S = 1.0
START_MAX_S = 20.0
FINISH_MAX_S = 40.0
LOOK_EVERY_S = 0.1
TELL_EVERY_S = 1.0


class DemoFailed(WorkerError):
    """The demo could not be shown to its end."""

    remedy = "See the workers' last words above; if it happens again, please report it."


@dataclass(slots=True)
class Show:
    """How far the demo has come."""

    planned_at: Mapping[str, float]
    account: Account = field(default_factory=Account)
    message: str = ""
    killed_pid: int = 0
    killed_at: float = 0.0
    orphans: frozenset[str] = frozenset()
    """What the killed worker had under way."""

    @property
    def finished(self) -> int:
        return sum(action_id in self.account.done for action_id in self.planned_at)

    @property
    def taken_over(self) -> list[float]:
        """When each orphan was begun by the other worker, counted from the kill."""
        moments = (self.account.begun_elsewhere(one, self.killed_pid, self.killed_at) for one in self.orphans)
        return sorted(moment - self.killed_at for moment in moments if moment is not None)

    @property
    def is_over(self) -> bool:
        return self.finished == len(self.planned_at) and len(self.taken_over) == len(self.orphans)


def run_demo(url: str | None, *, metrics: BinaryIO | None = None) -> tuple[Facts, bool]:
    """Show it; the closing table, and whether nothing was lost. What Prometheus would have read goes to `metrics`."""
    with tempfile.TemporaryDirectory(prefix="matrixsched-demo-") as folder:
        # Off the default installation: on a database that is in use the demo must not meet anybody's actions.
        app = App(url or f"sqlite:///{folder}/demo.db", installation=demo_app.INSTALLATION)
        app.sync.init(shards=SHARDS)
        with app.sync:
            demo = _Demo(app, Path(folder))
            answer = demo.run()
            if metrics is not None:
                metrics.write(demo.exposition())
            return answer


class _Demo:
    def __init__(self, app: App, folder: Path) -> None:
        self._app = app
        self._folder = folder
        self._evidence = Evidence(folder / "notes")
        self._metrics = folder / "metrics"
        self._metrics.mkdir()
        self._run = uuid4().hex[:8]
        self._workers: list[subprocess.Popen[bytes]] = []

    def run(self) -> tuple[Facts, bool]:
        say(f"database: {self._app.store.description}")
        with self._two_workers():
            show = self._schedule()
            with _display() as display:
                self._watch(show, display)
            self._end_periodic()
        facts = self._closing_table(show)
        return facts, facts["lost"] == 0

    def exposition(self) -> bytes:
        """The numbers of both workers, also of the one that was killed: they are in files."""
        return exposition_of(str(self._metrics))()

    # The workers.

    @contextmanager
    def _two_workers(self) -> Iterator[None]:
        try:
            self._workers = [self._start_worker(number) for number in (1, 2)]
            self._wait_for_workers()
            yield
        finally:
            for worker in self._workers:
                worker.terminate()
            for worker in self._workers:
                worker.wait()

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        target = f"{demo_app.__name__}:app"
        leases = ["--attempt-lease", str(ATTEMPT_LEASE_S), "--shard-lease", str(SHARD_LEASE_S)]
        # As if nothing were set: the demo shows the same everywhere.
        unset = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        (settings := self._folder / FILE_NAME).touch()
        environment = unset | {
            FILE_VARIABLE: str(settings),
            demo_app.DATABASE_VARIABLE: self._app.url,
            demo_app.EVIDENCE_VARIABLE: str(self._folder / "notes"),
            FOLDER_VARIABLE: str(self._metrics),
        }
        with self._log(number).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "matrixsched", "worker", target, *leases],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=environment,
            )

    def _log(self, number: int) -> Path:
        return self._folder / f"worker-{number}.log"

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + START_MAX_S
        while not all("worker started" in self._log(number).read_text() for number in (1, 2)):
            if time.monotonic() > deadline or any(worker.poll() is not None for worker in self._workers):
                self._fail("the workers did not start")
            time.sleep(LOOK_EVERY_S)

    def _fail(self, why: str) -> None:
        for number in (1, 2):
            say(self._log(number).read_text()[-2000:])
        raise DemoFailed(why)

    # The work.

    def _schedule(self) -> Show:
        started_at = time.time() + 1.0
        planned_at = {
            f"demo:{self._run}:{handler}:{number}": started_at + number / count * SPREAD_S
            for handler, count in (ONE_OFF | {"periodic": PERIODIC}).items()
            for number in range(count)
        }
        self._app.sync.schedule_many(_call(action_id, at) for action_id, at in planned_at.items())
        return Show(planned_at)

    def _end_periodic(self) -> None:
        for number in range(PERIODIC):
            with suppress(MatrixSchedError):
                self._app.sync.cancel(f"demo:{self._run}:periodic:{number}")

    # The story.

    def _watch(self, show: Show, display: Display) -> None:
        begins_at = min(show.planned_at.values())
        show.message = "two workers share the work"
        while not show.is_over:
            show.account.add(self._evidence.read())
            elapsed_s = time.time() - begins_at
            if not show.killed_pid and elapsed_s > KILL_AFTER_S:
                self._kill_one(show)
            if elapsed_s > FINISH_MAX_S or self._workers[1].poll() is not None:
                break
            display.update(show)
            time.sleep(LOOK_EVERY_S)
        show.message = "done"
        display.update(show)

    def _kill_one(self, show: Show) -> None:
        """Kill the first worker, as soon as it has something in its hands."""
        victim = self._workers[0]
        if not show.account.under_way(victim.pid):
            return
        show.killed_at = time.time()
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        mark_process_dead(victim.pid, path=str(self._metrics))  # type: ignore[no-untyped-call]
        show.account.add(self._evidence.read())
        show.killed_pid = victim.pid
        show.orphans = frozenset(one for one in show.account.under_way(victim.pid) if one not in show.account.done)
        show.message = f"worker {victim.pid} was killed (-9) with {len(show.orphans)} actions under way"

    def _closing_table(self, show: Show) -> Facts:
        account, planned = show.account, show.planned_at
        late = sorted(account.first_begun[one] - at for one, at in planned.items() if one in account.first_begun)
        cuts = statistics.quantiles(late, n=100) if len(late) > 1 else [0.0] * 99
        once = [one for one in planned if ":periodic:" not in one]
        return {
            "scheduled": len(planned),
            "run": sum(account.done.values()),
            "retried": sum(account.failed.values()),
            "interrupted": len(show.orphans),
            "run_twice": sum(account.done[one] > 1 for one in once if one in account.done),
            "lost": len(planned) - show.finished,
            "late_p50_ms": round(cuts[49] * 1000, 1),
            "late_p99_ms": round(cuts[98] * 1000, 1),
            "kill_to_takeover_s": timedelta(seconds=max(show.taken_over, default=0.0)),
            "attempt_lease_s": timedelta(seconds=ATTEMPT_LEASE_S),
        }


def _call(action_id: str, at: float) -> Call:
    handler = action_id.split(":")[2]
    repeat = every(timedelta(seconds=1)) if handler == "periodic" else None
    return call(handler, id=action_id, at=datetime.fromtimestamp(at, UTC), repeat=repeat)


# How it looks.


class Display(Protocol):
    def update(self, show: Show) -> None: ...


def _display() -> AbstractContextManager[Display]:
    screen = console(stderr=True)
    return LiveDisplay(screen) if screen.is_terminal else PlainDisplay(lambda line: screen.print(Text(line)))


class LiveDisplay:
    def __init__(self, screen: Console) -> None:
        self._live = Live(console=screen, refresh_per_second=10)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def update(self, show: Show) -> None:
        total = len(show.planned_at)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("WORKER", "DONE", "UNDER WAY", ""):
            table.add_column(title, justify="left" if title in ("WORKER", "") else "right")
        for pid, done in sorted(show.account.done_by.items()):
            is_dead = pid == show.killed_pid
            state = Text("killed", style="red") if is_dead else Text("running", style="green")
            table.add_row(str(pid), f"{done:,}", str(len(show.account.under_way(pid))), state)
        bar = ProgressBar(total=total, completed=show.finished, width=60)
        # The bar is given a row of its own: by itself it does not end its line.
        rows = Table.grid()
        for part in (Text(_progress(show), style="bold"), bar, table):
            rows.add_row(part)
        self._live.update(rows)


class PlainDisplay:
    """A line a second, and one for each turn of the story."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._told_at = float("-inf")
        self._told = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to put away."""

    def update(self, show: Show) -> None:
        now = time.monotonic()
        if show.message != self._told or now - self._told_at >= TELL_EVERY_S:
            self._told_at, self._told = now, show.message
            self._tell(_progress(show))


def _progress(show: Show) -> str:
    takeover = f", {len(show.taken_over)} of {len(show.orphans)} taken over" if show.orphans else ""
    return f"{show.finished:,} of {len(show.planned_at):,} done{takeover}: {show.message}"
