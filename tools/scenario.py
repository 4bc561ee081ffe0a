"""Send campaigns with real worker processes, kill some of them, and show that every promise was kept.

    ./tools/dev scenario                          200,000 messages on PostgreSQL, a few minutes
    ./tools/dev scenario --sqlite                 12,000 messages in one file, a minute or so

All messages are due at once. Workers that are killed (-9, with work in their hands) are not replaced: the others take
over. Afterwards the notes that the handlers took are compared with what the formula and the limits allow: with the
formula written a second time, and with what must have been waiting by these notes. Exit code 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for support, which starts servers and workers for tests, too

from benchmarks.places import Place  # noqa: E402
from playing import Parser, console, exit_code, file_to_write, played, whole  # noqa: E402
from rich.console import Console  # noqa: E402
from sending.campaigns import ZONES, Campaigns, Letter  # noqa: E402
from sending.judging import Run, judge  # noqa: E402
from sending.records import count_live, is_settled, read_records  # noqa: E402
from sending.showing import Showing  # noqa: E402
from support.processes import Scene, until  # noqa: E402

from matrixsched import App  # noqa: E402
from matrixsched.errors import BadInput, InvalidDurationText  # noqa: E402
from matrixsched.rules.durations import parse_duration  # noqa: E402
from matrixsched.rules.quota import QuotaSettings  # noqa: E402
from matrixsched.rules.rates import parse_rate  # noqa: E402

Read = TypeVar("Read")

MESSAGES, MESSAGES_SQLITE = 200_000, 12_000
SPEED, SPEED_SQLITE = "60000/min", "12000/min"
TELL_EVERY_S = 5.0
LOOK_EVERY_S = 0.25
SHARDS = 16
TIDY_EVERY = "2s"
"""So that messages that expired do not have to be waited for."""


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)

    def play(place: Place, stage: Scene, talk: Console) -> Run:
        playing = Play(chosen.campaigns, place, stage, chosen.kill, talk, chosen.distributed)
        playing.run(chosen.workers)
        return playing.outcome()

    outcome = played("scenario", chosen, play)
    if outcome is None:
        return 1
    checks = judge(outcome)
    showing = Showing(outcome, checks)
    showing.show(console())
    if chosen.svg is not None:
        chosen.svg.write_text(showing.as_svg())
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(showing.as_json(), indent=2) + "\n")
    return exit_code(checks)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="scenario", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=whole(1), help=f"default: {MESSAGES:,}; on SQLite {MESSAGES_SQLITE:,}")
    parser.add_argument("--templates", type=whole(1), default=50)
    parser.add_argument("--zones", type=whole(1), default=len(ZONES), help=f"of recipients, up to {len(ZONES)}")
    parser.add_argument("--workers", type=whole(1), default=4, help="processes (default: 4)")
    parser.add_argument("--kill", type=whole(0), default=2, help="how many of them are killed (default: 2)")
    parser.add_argument(
        "--speed", type=said(parse_rate), help=f"MaxSendSpeed; default: {SPEED}; on SQLite {SPEED_SQLITE}"
    )
    parser.add_argument("--pool", type=whole(0), default=5, help="of that limit (default: 5)")
    parser.add_argument("--interval", type=said(interval), default="10s", help="of the quota (default: 10s)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same messages")
    parser.add_place()
    parser.add_argument("--svg", type=file_to_write, metavar="FILE", help="write a chart to this file")
    parser.add_json()
    chosen = parser.parse_args(arguments)
    if chosen.kill >= chosen.workers:
        parser.error("at least one worker must live on: choose --kill below --workers")
    if chosen.zones > len(ZONES):
        parser.error(f"--zones is {chosen.zones}, but only {len(ZONES)} are known")
    chosen.campaigns = Campaigns(
        messages=chosen.messages or (MESSAGES_SQLITE if chosen.sqlite else MESSAGES),
        templates=chosen.templates,
        zones=chosen.zones,
        speed=chosen.speed or parse_rate(SPEED_SQLITE if chosen.sqlite else SPEED),
        pool=chosen.pool,
        interval=chosen.interval,
        seed=chosen.seed,
    )
    return chosen


def interval(text: str) -> timedelta:
    try:
        return QuotaSettings(interval=parse_duration(text, "it")).interval
    except InvalidDurationText:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 10s or 5m") from None


def said(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """With the product's own words about what cannot be used; its remedies are for those who call it."""

    def reading(text: str) -> Read:
        try:
            return read(text)
        except BadInput as error:
            raise argparse.ArgumentTypeError(error.args[0]) from None

    return reading


@dataclass
class Play:
    campaigns: Campaigns
    place: Place
    stage: Scene
    kill: int
    talk: Console
    distributed: bool | None = None
    _letters: dict[str, Letter] = field(default_factory=dict)
    _killed: dict[int, float] = field(default_factory=dict)
    """Processes, with when that was."""
    _settled_at: float | None = None
    _load: float = 0.0
    _told_at: float = 0.0

    def run(self, workers: int) -> None:
        """Schedule everything, start the workers, kill some, and wait until nothing is left to do."""
        app = App(self.place.url)
        app.sync.init(shards=SHARDS, distributed=self.distributed)
        with app.sync:
            self.campaigns.install(app)
            begun = time.monotonic()
            self._letters = {letter.id: letter for letter in self.campaigns.letters(datetime.now(UTC))}
            app.sync.schedule_many(letter.call() for letter in self._letters.values())
            self._tell(f"{self.campaigns.messages:,} messages scheduled in {time.monotonic() - begun:.0f} s")
        self.place.settle()
        for _ in range(workers):
            self.stage.start_worker("--tidy-every", TIDY_EVERY)
        for worker in self.stage.workers:
            worker.wait_until_started()
        self._tell(f"{workers} workers started; it takes at least {self.campaigns.duration_s:.0f} s")
        self._watch()
        for worker in self.stage.workers[self.kill :]:
            worker.process.terminate()
        for worker in self.stage.workers[self.kill :]:
            worker.exit_code()
        self.stage.look()

    def _watch(self) -> None:
        deadline = time.monotonic() + 60 + 5 * self.campaigns.duration_s
        # Counting what is left is dear: only once the handlers have done almost all.
        almost = self.campaigns.messages * 0.97
        while self.stage.done() < almost or count_live(self.place):
            done = self.stage.done()
            if self._settled_at is None and is_settled(self.place):
                self._settled_at = time.time()
            self._load = max(self._load, os.getloadavg()[0] / (os.cpu_count() or 1))
            if len(self._killed) < self.kill and done >= self._kill_at(len(self._killed)):
                self._kill_one(len(self._killed))
            if time.monotonic() - self._told_at >= TELL_EVERY_S:
                self._tell(f"{done:,} sent")
            if time.monotonic() > deadline:
                self._tell("it takes too long: what is left is judged as lost")
                return
            time.sleep(LOOK_EVERY_S)

    def _kill_at(self, number: int) -> float:
        """After a third of the messages, and the others evenly until two thirds."""
        return self.campaigns.messages * (1 / 3 + number / 3 / max(1, self.kill - 1) if self.kill > 1 else 1 / 2)

    def _kill_one(self, number: int) -> None:
        victim = self.stage.workers[number]
        until(lambda: self.stage.look().under_way(victim.pid), "it has work in its hands")
        victim.process.kill()
        self._killed[victim.pid] = time.time()
        victim.process.wait()
        self._tell(f"worker {victim.pid} killed with {len(self.stage.look().under_way(victim.pid))} messages under way")

    def _tell(self, text: str) -> None:
        self._told_at = time.monotonic()
        self.talk.print(f"scenario: {text}", markup=False)

    def outcome(self) -> Run:
        return Run(
            campaigns=self.campaigns.by_name(),
            letters=self._letters,
            speed=self.campaigns.speed,
            pool=self.campaigns.pool,
            interval=self.campaigns.interval,
            account=self.stage.account,
            records=read_records(self.place),
            killed=self._killed,
            settled_at=self._settled_at,
            load=self._load,
        )


if __name__ == "__main__":
    sys.exit(main())
