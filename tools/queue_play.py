"""Let two workers handle the batches of three queues, fill one queue after the other, kill a worker; judge it.

    ./tools/dev queues                 on PostgreSQL, a minute or so
    ./tools/dev queues --sqlite        the same in one file

First it is shown, second by second, how processors follow the tasks: to the queue that fills up, and on to the next.
Then a worker is killed (-9) with batches in its hands: what it had comes back when its visibility timeout is over, with
one attempt more, and nothing is lost. Exit code 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for support, which starts servers and workers for tests, too

from benchmarks.places import Place  # noqa: E402
from playing import Check, Parser, perform, whole  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from support.processes import Scene, WorkerUnderTest, until  # noqa: E402
from support.queue_contract import CONTRACT, NAMES, TASK_S  # noqa: E402

from matrixsched import App  # noqa: E402
from matrixsched.queues import task_class  # noqa: E402

PROCESSORS = 4
"""Of each worker."""
TASKS_PER_S = round(2 * PROCESSORS / TASK_S)
"""What both workers handle at most."""
VISIBILITY_S = 3.0
GRACE_S = 1.0
FOLLOW_S = 12.0
"""Workers report every five seconds, and so often it is planned."""
PATIENCE_S = 120.0
ASSIGNED = "select assignment from matrixsched.queue_workers where assignment is not null"


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    return perform("queues", chosen, partial(Play, chosen))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="queues", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=whole(1), default=20, help="how long each queue keeps them busy (default: 20)"
    )
    parser.add_argument("--no-following", action="store_true", help="only the worker that is killed")
    parser.add_patience()
    parser.add_place()
    parser.add_json()
    return parser.parse_args(arguments)


@dataclass
class Moment:
    second: float
    what: str
    ready: dict[str, int]
    processors: dict[str, int]


@dataclass
class Play:
    chosen: argparse.Namespace
    place: Place
    stage: Scene
    talk: Console
    moments: list[Moment] = field(default_factory=list)
    put: int = 0
    followed_s: dict[str, float] = field(default_factory=dict)
    in_hands: frozenset[str] = frozenset()
    killed_at: float = 0.0
    _killed: WorkerUnderTest | None = None

    def run(self) -> None:
        app = App(self.place.url)
        app.queues.use(CONTRACT)
        app.sync.init(shards=4, distributed=self.chosen.distributed)
        self._begun = time.monotonic()
        with app.sync:
            for _ in range(2):
                self._start_worker()
            if not self.chosen.no_following:
                for name in NAMES[:2]:
                    self._fill(app, name, self.chosen.seconds * TASKS_PER_S)
                    self._until_followed(app, name)
                    self._until(lambda name=name: self._is_almost_empty(app, name), f"{name} is almost empty")
                self._until(lambda: not self._look(app, "").ready, "the queues are empty")
            self._kill_one(app)
            self._until(lambda: not app.sync.queues.stat()["reports"].total, "all tasks are gone")
        (survivor,) = [worker for worker in self.stage.workers if worker is not self._killed]
        survivor.process.terminate()
        survivor.exit_code()
        self.stage.look()

    def _start_worker(self) -> WorkerUnderTest:
        options = ("--processors", f"{PROCESSORS}", "--visibility-timeout", f"{VISIBILITY_S:g}")
        worker = self.stage.start_worker(*options, app="queue_app", command="queue-worker")
        return worker.wait_until_started()

    def _fill(self, app: App, name: str, count: int) -> None:
        kind: Any = task_class(CONTRACT.queue(name))
        app.sync.queues.put_many([kind(number=number) for number in range(count)])
        self.put += count
        self._look(app, f"{count:,} put into {name}")

    def _until_followed(self, app: App, name: str) -> None:
        """Until most processors are where the tasks are, and for some seconds more."""
        begun = time.monotonic()

        def most() -> bool:
            moment = self._look(app, "")
            return moment.processors.get(name, 0) > PROCESSORS

        self._until(most, f"most processors are with {name}")
        self.followed_s[name] = time.monotonic() - begun
        self.moments[-1].what = f"most processors are with {name}"

    def _is_almost_empty(self, app: App, name: str) -> bool:
        return self._look(app, "").ready.get(name, 0) < 2 * TASKS_PER_S

    def _kill_one(self, app: App) -> None:
        self._fill(app, "reports", 600)
        until(lambda: any(map(self._in_hands, self.stage.workers)), "a batch is in somebody's hands")
        victim = max(self.stage.workers, key=lambda worker: len(self._in_hands(worker)))
        victim.process.kill()
        self.killed_at = time.time()
        victim.process.wait()
        self.in_hands = self._in_hands(victim)
        self._killed = victim
        self._look(app, f"a worker killed with {len(self.in_hands)} tasks in its hands")

    # What is seen.

    def _in_hands(self, worker: WorkerUnderTest) -> frozenset[str]:
        return self.stage.look().under_way(worker.pid)

    def _look(self, app: App, what: str) -> Moment:
        ready = {name: stat.ready for name, stat in app.sync.queues.stat().items() if stat.ready}
        moment = Moment(round(time.monotonic() - self._begun, 1), what, ready, self._processors())
        last = self.moments[-1] if self.moments else None
        if what or last is None or moment.second - last.second >= 1 or moment.processors != last.processors:
            self.moments.append(moment)
        if what:
            self.talk.print(f"queues: {what}", markup=False)
        return moment

    def _processors(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for (assignment,) in self.place.ask(ASSIGNED):
            told = json.loads(assignment) if isinstance(assignment, str) else assignment
            for number, processors in told.items():
                name = NAMES[int(number) - 1]
                counts[name] = counts.get(name, 0) + processors
        return counts

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        until(holds, what, within_s=PATIENCE_S)

    # What it adds up to.

    def figures(self) -> dict[str, object]:
        return {"moments": [vars(one) for one in self.moments]}

    def table(self) -> Table:
        table = Table(title="tasks that wait, and processors assigned; the others go round", box=None, pad_edge=False)
        for heading in ("SECOND", *(f"{name} waiting" for name in NAMES), *(f"{name} processors" for name in NAMES)):
            table.add_column(heading, justify="right")
        table.add_column("", justify="left")
        for one in self.moments:
            waiting = [f"{one.ready.get(name, 0):,}" for name in NAMES]
            processors = [f"{one.processors.get(name, 0)}" for name in NAMES]
            table.add_row(f"{one.second:.0f}", *waiting, *processors, one.what)
        return table

    def judge(self) -> list[Check]:
        account = self.stage.account
        lost = self.put - len(account.done)
        again = {id for id, notes in account.begun_at.items() if len(notes) > 1}
        strays = again - self.in_hands
        late = [account.done_at[id] - self.killed_at for id in self.in_hands if id in account.done_at]
        attempts = {account.attempts_of(id) for id in self.in_hands}
        following = [
            Check(f"processors follow to {name} within {FOLLOW_S:g} s", took <= FOLLOW_S, f"after {took:.1f} s")
            for name, took in self.followed_s.items()
        ]
        return [
            *following,
            Check("nothing is lost", lost == 0, f"{len(account.done):,} of {self.put:,} tasks were handled"),
            Check("a worker is killed with tasks in its hands", bool(self.in_hands), f"{len(self.in_hands)} tasks"),
            Check(
                "handled again is only what was in killed hands", not strays, f"{len(again)}, {len(strays)} of others"
            ),
            Check("they come back with one attempt more", attempts <= {(0, 1)}, f"attempts {sorted(attempts)}"),
            Check(
                f"they are done within the visibility timeout ({VISIBILITY_S:g} s) and {GRACE_S:g} s",
                max(late, default=0.0) <= VISIBILITY_S + GRACE_S + self.chosen.patience,
                f"{max(late, default=0.0):.2f} s after the kill at the latest",
            ),
        ]


if __name__ == "__main__":
    sys.exit(main())
