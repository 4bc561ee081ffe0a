"""Let a fleet of worker processes join, work, be restarted one after another, and leave; judge it.

    ./tools/dev fleet                            32 processes, 256 shards, 100 restarts: about ten minutes on two cores
    ./tools/dev fleet --processes 4 --shards 16 --restarts 4 --rate 40

At first nothing is to be done: what the fleet costs at rest is counted. Then actions come due all the time, evenly,
while workers are stopped as a deploy stops them (SIGTERM) and others take their places. Every start is noted outside
of the database. Exit code 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for support, which starts servers and workers for tests, too

from benchmarks.measuring import shown, spread_of  # noqa: E402
from benchmarks.places import Place  # noqa: E402
from benchmarks.statements import TRANSACTIONS  # noqa: E402
from playing import Check, Parser, perform, whole  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from support.processes import Scene, WorkerUnderTest, until  # noqa: E402

from matrixsched import App, call  # noqa: E402

CONCURRENCY = 10
HANDLER_S = 0.02
AHEAD = timedelta(seconds=1)
"""Each action is scheduled so long before it is due: lateness is then that of workers alone."""
BATCHES_PER_S = 5
SETTLE_S = 12.0
"""PostgreSQL's sessions at rest tell of their last transactions up to ten seconds later."""
AT_REST_S = 20.0
STEADY_S = 30.0
STEADY_MIN_S = 10
"""In less time who does how much is chance."""
LATENESS_P99_MS = 1_000.0
POOL = 8
CONNECTIONS_MAX = POOL + 3
"""Of a process: the pool, one for the leases of its attempts, one for those of its batches, and a listener."""
AT_REST = "transactions at rest, /s"
AT_REST_MAX = 3.0
"""Transactions per second and process."""
FAIR = 0.5
"""What the least busy worker does at least of an even share, while all are there."""
PATIENCE_S = 120.0
LEASE_OPTIONS = ("--attempt-lease", "10", "--shard-lease", "10")


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    return perform("fleet", chosen, partial(Play, chosen))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="fleet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=whole(2), default=32, help="workers (default: 32)")
    parser.add_argument("--shards", type=whole(1), default=256, help="default: 256")
    parser.add_argument("--restarts", type=whole(1), default=100, help="one after another (default: 100)")
    parser.add_argument("--rate", type=whole(1), default=100, help="actions that come due each second (default: 100)")
    parser.add_argument("--steady", type=whole(1), default=round(STEADY_S), help="seconds before the first restart")
    parser.add_argument("--no-rest", action="store_true", help="do not count what it costs at rest")
    parser.add_patience()
    parser.add_place()
    parser.add_json()
    return parser.parse_args(arguments)


class Client:
    """Schedules actions that come due evenly, in a thread, until it is told to stop."""

    def __init__(self, url: str, rate: int) -> None:
        self._app = App(url)
        self._every = timedelta(seconds=1 / rate)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: list[BaseException] = []
        self.due_at: dict[str, float] = {}

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        try:
            with self._app.sync as sync:
                due = datetime.now(UTC) + AHEAD
                while not self._stopping.wait(1 / BATCHES_PER_S):
                    batch: dict[str, datetime] = {}
                    while due < datetime.now(UTC) + AHEAD:
                        batch[f"{len(self.due_at) + len(batch)}"] = due
                        due += self._every
                    sync.schedule_many(call("sleep", HANDLER_S, id=id, at=at) for id, at in batch.items())
                    self.due_at |= {id: at.timestamp() for id, at in batch.items()}
        except BaseException as error:
            self._failed.append(error)


@dataclass
class Play:
    chosen: argparse.Namespace
    place: Place
    stage: Scene
    talk: Console
    measured: dict[str, float] = field(default_factory=dict)
    connections: Counter[int] = field(default_factory=Counter)
    """The most that each process had."""
    exit_codes: list[int] = field(default_factory=list)
    _due_at: dict[str, float] = field(default_factory=dict)
    _shares: list[int] = field(default_factory=list)

    def run(self) -> None:
        App(self.place.url).sync.init(shards=self.chosen.shards, distributed=self.chosen.distributed)
        self._say(f"{self.chosen.processes} workers join")
        fleet = [self._join() for _ in range(self.chosen.processes)]
        for worker in fleet:
            worker.wait_until_started()
        if self.place.dialect == "postgresql" and not self.chosen.no_rest:
            self._rest()
        with Client(self.place.url, self.chosen.rate) as client:
            self._work_steadily(fleet)
            begun = time.monotonic()
            for number in range(self.chosen.restarts):
                fleet.append(self._replace(fleet.pop(0), number))
            self.measured["restarts, s"] = time.monotonic() - begun
        self._due_at = client.due_at
        self._until(lambda: self.stage.done() >= len(self._due_at), "all are done")
        self._say("all leave")
        for worker in fleet:
            worker.process.terminate()
        self.exit_codes += [worker.exit_code() for worker in fleet]
        self.stage.look()

    def _join(self) -> WorkerUnderTest:
        return self.stage.start_worker("--concurrency", f"{CONCURRENCY}", leases=LEASE_OPTIONS)

    def _rest(self) -> None:
        """What it costs that nobody has anything to do."""
        self._say("nothing is to be done")
        time.sleep(SETTLE_S)
        before, begun = self._transactions(), time.monotonic()
        time.sleep(AT_REST_S)
        self.measured[AT_REST] = (self._transactions() - before) / (time.monotonic() - begun)

    def _transactions(self) -> int:
        ((count,),) = self.place.ask(TRANSACTIONS)
        return int(count)

    def _work_steadily(self, fleet: Sequence[WorkerUnderTest]) -> None:
        self._say(f"{self.chosen.rate} actions come due each second")
        self._until(lambda: self.stage.done() > 0, "they are at work")
        before, ends = Counter(self.stage.account.done_by), time.monotonic() + self.chosen.steady
        while time.monotonic() < ends:
            time.sleep(1)
            self._count_connections(fleet)
        after = Counter(self.stage.look().done_by)
        self._shares = [after[worker.pid] - before[worker.pid] for worker in fleet]

    def _replace(self, worker: WorkerUnderTest, number: int) -> WorkerUnderTest:
        """As a rolling deploy does: the successor is at work before the next one is stopped."""
        successor = self._join()
        worker.process.terminate()
        self.exit_codes.append(worker.exit_code())
        successor.wait_until_started()
        self._count_connections([successor])
        if number % 10 == 9:
            self._say(f"{number + 1} of {self.chosen.restarts} restarted")
        return successor

    def _count_connections(self, workers: Sequence[WorkerUnderTest]) -> None:
        if self.place.dialect == "postgresql":
            port = urlsplit(self.place.url).port or 5432
            ours = sockets_to(port)
            for worker in workers:
                self.connections[worker.pid] = max(self.connections[worker.pid], len(ours & sockets_of(worker.pid)))

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        until(holds, what, within_s=PATIENCE_S)

    def _say(self, what: str) -> None:
        self.talk.print(f"fleet: {what}", markup=False)

    # What it adds up to.

    def judge(self) -> list[Check]:
        account, due_at = self.stage.account, self._due_at
        lost = due_at.keys() - account.done.keys()
        again = [id for id, notes in account.begun_at.items() if len(notes) > 1]
        early = [id for id, at in account.first_begun.items() if at < due_at.get(id, 0)]
        late_ms = self._lateness_ms()
        even = sum(self._shares) / len(self._shares)
        return [
            Check("nothing is lost", not lost, f"{len(due_at) - len(lost):,} of {len(due_at):,} actions were done"),
            Check("nothing runs twice", not again, f"{len(again)} did"),
            Check("nothing runs early", not early, f"{len(early)} did"),
            Check(
                f"99 of 100 start within {LATENESS_P99_MS:,.0f} ms of their instant",
                late_ms["p99"] <= LATENESS_P99_MS + 1_000 * self.chosen.patience,
                f"p50 {late_ms['p50']:.0f} ms, p99 {late_ms['p99']:.0f} ms",
            ),
            Check("everybody who is stopped leaves in order", not any(self.exit_codes), f"{len(self.exit_codes)} left"),
            Check(
                f"the least busy one does {FAIR:.0%} of an even share",
                None if self.chosen.steady < STEADY_MIN_S else min(self._shares) >= FAIR * even,
                f"{min(self._shares)} to {max(self._shares)} actions, {even:.0f} would be even",
            ),
            *self._judge_rest(),
            *self._judge_connections(),
        ]

    def _judge_rest(self) -> list[Check]:
        if AT_REST not in self.measured:
            return []
        each = self.measured[AT_REST] / self.chosen.processes
        promise = f"at rest a process makes {AT_REST_MAX:g} transactions a second at most"
        return [Check(promise, each <= AT_REST_MAX, f"{each:.2f}, all together {self.measured[AT_REST]:.1f}")]

    def _judge_connections(self) -> list[Check]:
        if not self.connections:
            return []
        most, mean = max(self.connections.values()), statistics.mean(self.connections.values())
        promise = f"no process has more than {CONNECTIONS_MAX} connections"
        return [Check(promise, most <= CONNECTIONS_MAX, f"{most} at most, {mean:.1f} on average")]

    def _lateness_ms(self) -> dict[str, float]:
        begun = self.stage.account.first_begun
        figures = spread_of([begun[id] - at for id, at in self._due_at.items() if id in begun])
        return {one.name: one.value for one in figures}

    def figures(self) -> dict[str, object]:
        return {"figures": self.measured}

    def table(self) -> Table:
        table = Table(title="a fleet on one machine", box=None, pad_edge=False, show_header=False)
        table.add_row(
            "processes, shards, restarts", f"{self.chosen.processes}, {self.chosen.shards}, {self.chosen.restarts}"
        )
        table.add_row("actions", f"{len(self._due_at):,}")
        for name, value in self._lateness_ms().items():
            table.add_row(f"lateness {name}", shown(value, "ms"))
        for name, value in self.measured.items():
            table.add_row(name, f"{value:,.1f}")
        return table


def sockets_to(port: int) -> frozenset[str]:
    """The inodes of all connections of this machine to that port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    words = (line.split() for line in lines)
    return frozenset(one[9] for one in words if int(one[2].rpartition(":")[2], 16) == port and one[3] == "01")


def sockets_of(pid: int) -> frozenset[str]:
    """The inodes of the sockets that a process has; none if it is gone."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = file.readlink().name
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return frozenset(found)


if __name__ == "__main__":
    sys.exit(main())
