"""Hand out the places of a semaphore for which very many tasks wait, let urgent ones come, kill a worker; judge it.

    ./tools/dev pool                   1,000,000 tasks, active 1000, try_release 900, on PostgreSQL; two minutes or so
    ./tools/dev pool --sqlite          the same with 100,000 tasks in one file

Two workers balance and are told of it. When the places are given, urgent tasks come, and those that are asked step
back; then the same again, with still more urgent ones, and the worker that balanced is killed (-9) with events in its
hands. Afterwards the notes that the handlers took are compared with what the semaphore says. Exit code 1: a promise was
broken.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for support, which starts servers and workers for tests, too

from benchmarks.places import Place  # noqa: E402
from playing import Check, Parser, perform, whole  # noqa: E402
from rich.console import Console  # noqa: E402
from support.processes import Scene, WorkerUnderTest, until  # noqa: E402

from matrixsched import App  # noqa: E402
from matrixsched.rules.semaphore import acquired_handler, event_id, try_release_handler  # noqa: E402

WAITING, WAITING_SQLITE = 1_000_000, 100_000
SHARDS = 16
PATIENCE_S = 120.0
HELD = "select count(*) from matrixsched.semaphore_tasks where semaphore = 'pool' and state <> 'waiting'"
ALL = "select count(*) from matrixsched.semaphore_tasks where semaphore = 'pool'"
WRONG = """
select count(*) from matrixsched.semaphore_tasks
 where semaphore = 'pool' and state = 'waiting'
   and priority > (select min(priority) from matrixsched.semaphore_tasks
                    where semaphore = 'pool' and state <> 'waiting')
"""
BALANCED = re.compile(r"semaphore balanced acquired=(?P<acquired>\d+) asked=(?P<asked>\d+).* took_s=(?P<took>[\d.e-]+)")
ACQUIRED, ASKED = acquired_handler("pool"), try_release_handler("pool")


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    return perform("pool", chosen, partial(Play, chosen))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="pool", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=whole(1), help=f"tasks; default: {WAITING:,}; on SQLite {WAITING_SQLITE:,}")
    parser.add_argument("--active", type=whole(1), default=1000, help="places (default: 1000)")
    parser.add_argument("--try-release", type=whole(1), default=900, help="that may be asked for (default: 900)")
    parser.add_argument("--urgent", type=whole(1), default=100, help="tasks that come later, twice (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same priorities")
    parser.add_place()
    parser.add_json()
    chosen = parser.parse_args(arguments)
    chosen.waiting = chosen.waiting or (WAITING_SQLITE if chosen.sqlite else WAITING)
    if chosen.try_release > chosen.active or 2 * chosen.urgent > chosen.try_release:
        parser.error("twice --urgent must fit into --try-release, and that into --active")
    if chosen.waiting < chosen.active:
        parser.error("--waiting is below --active: nobody would wait")
    return chosen


@dataclass
class Round:
    """Urgent tasks came."""

    name: str
    urgent: list[str]
    asked: int = 0
    """How many were told to release their places."""
    active_after_s: list[float] = field(default_factory=list)
    """For each urgent task, when its handler was told of its place."""
    in_hands: frozenset[str] = frozenset()
    """The events that a worker had in its hands when it was killed."""

    @property
    def figures(self) -> Check:
        soon = sorted(self.active_after_s)
        found = f"{statistics.median(soon):.2f} s in the middle, {soon[0]:.2f} s the first, {soon[-1]:.2f} s the last"
        return Check(f"{self.name} tasks became active", None, found)

    @property
    def is_asked_once_for_each(self) -> Check:
        found = f"{self.asked} for {len(self.urgent)} {self.name} tasks"
        return Check("as many are asked as more important ones wait", self.asked == len(self.urgent), found)


@dataclass
class Play:
    chosen: argparse.Namespace
    place: Place
    stage: Scene
    talk: Console
    rounds: list[Round] = field(default_factory=list)
    enqueued_s: float = 0.0
    filled_s: float = 0.0
    held_most: int = 0
    _killed: WorkerUnderTest | None = None

    def run(self) -> None:
        app = App(self.place.url)
        app.sync.init(shards=SHARDS, distributed=self.chosen.distributed)
        with app.sync:
            self._enqueue(app)
            self._fill()
            self._let_urgent_come(app, "urgent", 2.0, kill=False)
            self._let_urgent_come(app, "most urgent", 3.0, kill=True)
        for worker in self.stage.workers:
            if worker is not self._killed:
                worker.process.terminate()
                worker.exit_code()
        self.stage.look()

    def _enqueue(self, app: App) -> None:
        lots = random.Random(self.chosen.seed)
        pool = app.sync.semaphores.get_or_create("pool", active=self.chosen.active, try_release=self.chosen.try_release)
        begun = time.monotonic()
        pool.enqueue_many((f"task-{number}", lots.random()) for number in range(self.chosen.waiting))
        self.enqueued_s = time.monotonic() - begun
        self._tell(f"{self.chosen.waiting:,} tasks enqueued in {self.enqueued_s:.1f} s")
        self.place.settle()

    def _fill(self) -> None:
        for _ in range(2):
            self.stage.start_worker("--log-level", "debug", app="pool_app")
        for worker in self.stage.workers:
            worker.wait_until_started()
        begun = time.monotonic()
        self._wait(lambda: len(self._told(ACQUIRED)) >= self.chosen.active, "all places are told of")
        self.filled_s = time.monotonic() - begun
        self._tell(f"{self.chosen.active:,} places given, their handlers told {self.filled_s:.1f} s after the start")

    def _let_urgent_come(self, app: App, name: str, priority: float, *, kill: bool) -> None:
        one = Round(name, [f"{name} {number}" for number in range(self.chosen.urgent)])
        asked_before = len(self._told(ASKED))
        came_at = time.time()
        app.sync.semaphores.get("pool").enqueue_many(dict.fromkeys(one.urgent, priority))
        if kill:
            self._kill_one(one)
        self._wait(lambda: self._told(ACQUIRED).issuperset(one.urgent), f"the {name} tasks are told of")
        one.asked = len(self._told(ASKED)) - asked_before
        begun = self.stage.account.first_begun
        one.active_after_s = [begun[event_id(ACQUIRED, id)] - came_at for id in one.urgent]
        self.rounds.append(one)
        self._tell(f"{len(one.urgent)} {name} tasks came, {one.asked} were asked, all are active")

    def _kill_one(self, one: Round) -> None:
        """Balanced it is, for somebody is told already; most have not been, and some are being told just now."""
        until(lambda: any(map(self._in_hands, self.stage.workers)), "events are in somebody's hands")
        victim = max(self.stage.workers, key=lambda worker: len(self._in_hands(worker)))
        victim.process.kill()
        victim.process.wait()
        one.in_hands = self._in_hands(victim)
        self._killed = victim
        self._tell(f"worker {victim.pid} killed with {len(one.in_hands)} events under way")

    # What is seen.

    def _in_hands(self, worker: WorkerUnderTest) -> frozenset[str]:
        return self.stage.look().under_way(worker.pid)

    def _told(self, handler: str) -> set[str]:
        """The tasks whose events reached a handler."""
        prefix = event_id(handler, "")
        return {id.removeprefix(prefix) for id in self.stage.look().first_begun if id.startswith(prefix)}

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        """And count meanwhile who holds a place."""

        def looked() -> bool:
            self.held_most = max(self.held_most, self._ask(HELD))
            return holds()

        until(looked, what, within_s=PATIENCE_S)

    def _ask(self, text: str) -> int:
        ((count,),) = self.place.ask(text)
        return int(count)

    def _tell(self, text: str) -> None:
        self.talk.print(f"pool: {text}", markup=False)

    # What it adds up to.

    def table(self) -> None:
        """The verdicts tell everything."""

    def figures(self) -> dict[str, object]:
        return {"active after, s": {one.name: sorted(one.active_after_s) for one in self.rounds}}

    def judge(self) -> list[Check]:
        chosen, stage = self.chosen, self.stage
        tasks = chosen.waiting + sum(len(one.urgent) for one in self.rounds)
        there, wrong = self._ask(ALL), self._ask(WRONG)
        again = {id for id, notes in stage.account.begun_at.items() if len(notes) > 1}
        strays = again - {id for one in self.rounds for id in one.in_hands}
        return [
            Check("enqueued in bulk", None, f"{chosen.waiting:,} tasks in {_rate(chosen.waiting, self.enqueued_s)}"),
            Check("a balance", None, self._balances()),
            Check(
                "places given and told of", None, f"{chosen.active:,}, {self.filled_s:.1f} s after the workers started"
            ),
            *(one.figures for one in self.rounds),
            Check("no task is lost", there == tasks, f"{there:,} of {tasks:,} hold or wait"),
            Check("never more than `active` hold", self.held_most <= chosen.active, f"{self.held_most:,} at most"),
            Check("the most important hold", wrong == 0, f"{wrong} that wait are more important than one that holds"),
            *(one.is_asked_once_for_each for one in self.rounds),
            Check(
                "told twice is only what was in killed hands", not strays, f"{len(again)}, of these not: {len(strays)}"
            ),
        ]

    def _balances(self) -> str:
        """Those that gave places or asked for them, as the workers say it."""
        logs = self.stage.logs()
        took = [
            float(said["took"]) * 1000
            for said in BALANCED.finditer(logs)
            if said["acquired"] != "0" or said["asked"] != "0"
        ]
        return f"{statistics.median(took):.0f} ms in the middle, {max(took):.0f} ms at most, {len(took)} of them"


def _rate(count: int, seconds: float) -> str:
    return f"{seconds:.1f} s, {count / seconds:,.0f}/s"


if __name__ == "__main__":
    sys.exit(main())
