"""One run: load, faults, healing, draining; then everything that is known is put before the checkers."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from support.postgres import PostgresServer, start_postgres

from chaos import audit
from chaos.checkers import OF_ACTIONS
from chaos.facts import Facts, lives, read_database, read_operations, read_runs
from chaos.fleet import Fleet
from chaos.fleet_checkers import OF_THE_FLEET
from chaos.nemeses import Amounts, Fault, Nemeses
from chaos.notes import Notes, Tail, read_notes
from chaos.place import Place
from chaos.proxy import Proxy
from chaos.setting import PLACES, QUOTA_S, RATE, RATE_POOL, RATED, SEMAPHORE, SHARDS, TEMPLATES, open_app
from chaos.watching import STALL_S, Watch, is_confirmed, take_snapshot, undone
from matrixsched import State

DRAIN_MAX_S = 120.0
TELL_EVERY_S = 5.0
HARMLESS = re.compile(
    r"Future exception was never retrieved\nfuture: <Future finished exception=ConnectionError\("
    r"'unexpected connection_lost\(\) call'\)>(\n.+connection_lost.*)*"
)
"""asyncpg leaves it behind when a server is lost while it is connected to."""
BLOCKED = re.compile(r"^(?P<at>\S+) warning the event loop was blocked.* late_s=(?P<late>[\d.]+)", re.MULTILINE)
COMPLAINT = re.compile(r"Traceback|never retrieved|never awaited|Task was destroyed|database is locked")


@dataclass(frozen=True)
class Plan:
    seed: str
    seconds: float
    """In about which time all faults are done."""
    actions: int
    amounts: Amounts
    workers: int = 6
    clients: int = 2
    patience_s: float = 0.0

    @property
    def rate(self) -> float:
        """Calls in a second of each client: some write no action, some ten."""
        return max(4.0, 1.3 * self.actions / self.seconds / self.clients)


@dataclass(frozen=True)
class Verdict:
    name: str
    promise: str
    objections: list[str]


@dataclass
class Result:
    facts: Facts
    struck: dict[str, int]
    verdicts: list[Verdict]
    took_s: dict[str, float] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    """How many of each kind went through the proxy."""

    @property
    def broken(self) -> list[Verdict]:
        return [one for one in self.verdicts if one.objections]


def judge(facts: Facts) -> list[Verdict]:
    return [
        Verdict(checker.__name__, (checker.__doc__ or "").strip(), list(checker(facts)))
        for checker in (*OF_ACTIONS, *OF_THE_FLEET)
    ]


@dataclass
class Stage:
    """A database and what is between it and those who use it."""

    place: Place
    proxy: Proxy | None = None
    server: PostgresServer | None = None


@contextlib.contextmanager
def on_postgresql(url: str | None = None, *, distributed: bool | None = None) -> Iterator[Stage]:
    """A server of our own that is thrown away, or one whose owner does not want it restarted."""
    with contextlib.ExitStack() as stack:
        server = None
        if url is None:
            server = stack.enter_context(start_postgres(durable=True))
            url = server.create_database("chaos")
        parts = urlsplit(url)
        proxy = stack.enter_context(Proxy(parts.hostname or "127.0.0.1", parts.port or 5432))
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        proxied = parts._replace(netloc=f"{user}127.0.0.1:{proxy.port}").geturl()
        yield Stage(
            Place(url, proxied, distributed), proxy, server if server is not None and server.restartable else None
        )


@contextlib.contextmanager
def on_sqlite() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="matrixsched-chaos-") as folder:
        url = f"sqlite:///{folder}/chaos.db"
        yield Stage(Place(url, url))


Tell = Callable[[str], object]


class Haunting(Protocol):
    """What strikes during a run."""

    faults: list[Fault]
    struck: Counter[str]

    def start(self) -> None: ...

    def are_through(self) -> bool: ...

    def restart_if_due(self) -> None:
        """Called now and then by the thread that lives to the end."""

    def heal(self) -> None:
        """No more faults, and the end of those that last."""


@dataclass
class Campaign:
    stage: Stage
    plan: Plan
    folder: Path
    tell: Tell
    haunt: Callable[[Fleet], Haunting] | None = None
    """Instead of the nemeses of the plan."""

    def run(self) -> Result:
        place, plan = self.stage.place, self.plan
        self._prepare()
        took: dict[str, float] = {}
        with Fleet(place, self.folder, plan.seed) as fleet, Watch(place, fleet) as watch:
            nemeses = self._nemeses(fleet)
            with timed(took, "chaos"):
                self._start(fleet)
                nemeses.start()
                self._until_through(fleet, nemeses)
            with timed(took, "drain"):
                nemeses.heal()
                fleet.end("c")
                self._cancel_ticking(fleet)
                left = self._drained()
            fleet.end("w")
            ended_badly = [one for one in fleet.incarnations if one.ended_badly]
            watch.snapshots.append(take_snapshot(place))
        with timed(took, "judge"):
            facts = self._facts(fleet, watch, nemeses)
            facts.undone = left
            facts.left_alone = [
                f"{one.writer}, exit code {one.process.returncode}: {one.log.read_text(errors='replace')[-500:]}"
                for one in ended_badly
            ]
            verdicts = judge(facts)
        commits = {} if self.stage.proxy is None else dict(self.stage.proxy.commits)
        return Result(facts, dict(nemeses.struck), verdicts, took, commits)

    def _nemeses(self, fleet: Fleet) -> Haunting:
        if self.haunt is not None:
            return self.haunt(fleet)
        stage, plan = self.stage, self.plan
        return Nemeses(stage.place, fleet, stage.proxy, stage.server, plan.amounts, plan.seconds, plan.seed)

    def _prepare(self) -> None:
        app = open_app(self.stage.place.url, "judge")
        app.sync.init(shards=SHARDS, distributed=self.stage.place.distributed)
        with app.sync:
            app.sync.limits.set(f"key:{RATED}", RATE, pool=RATE_POOL)
            for template in TEMPLATES:
                app.sync.templates.set(template)
                app.sync.limits.set(f"template:{template}", RATE, pool=RATE_POOL)
            app.sync.quota.set(interval=timedelta(seconds=QUOTA_S))
            app.sync.semaphores.get_or_create(SEMAPHORE, active=PLACES)
        audit.install(self.stage.place)

    def _start(self, fleet: Fleet) -> None:
        fleet.start_worker(is_survivor=True)
        for _ in range(self.plan.workers - 1):
            fleet.start_worker()
        for _ in range(self.plan.clients):
            fleet.start_client(self.plan.rate)

    def _until_through(self, fleet: Fleet, nemeses: Haunting) -> None:
        calls, notes = Tail(fleet.calls), Tail(fleet.notes)
        told_at = began = time.monotonic()
        while not (nemeses.are_through() and calls.look().get("ok", 0) >= self.plan.actions):
            nemeses.restart_if_due()
            time.sleep(0.05)
            if not fleet.alive("c"):
                raise AssertionError(f"all clients have ended: see {[one.log for one in fleet.of('c')]}")
            if time.monotonic() - told_at >= TELL_EVERY_S:
                told_at = time.monotonic()
                struck = ", ".join(
                    f"{count} {name.replace('_', ' ')}" for name, count in sorted(nemeses.struck.items())
                )
                done = notes.look().get("done", 0)
                self.tell(f"{told_at - began:.0f} s: {calls.look().get('ok', 0):,} actions, {done:,} runs; {struck}")

    def _cancel_ticking(self, fleet: Fleet) -> None:
        """Those of clients that were killed would go on for ever."""
        app, calls = open_app(self.stage.place.url, "judge"), Notes(fleet.calls)
        with app.sync:
            for number, one in enumerate(app.sync.list(state=State.LIVE, handler="tick", limit=1000)):
                name = f"judge-{number}"
                calls.write(kind="call", op=name, what="cancel", ids=[one.id], at=time.time())
                answer = app.sync.cancel(one.id)
                calls.write(kind="ok", op=name, at=time.time(), guid=answer.guid, changed=answer.changed)

    def _drained(self) -> int:
        deadline = time.monotonic() + DRAIN_MAX_S
        while (left := undone(self.stage.place)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _facts(self, fleet: Fleet, watch: Watch, nemeses: Haunting) -> Facts:
        said = blocked(self.folder)
        stalls = [*watch.stalls, *(one for one in said if is_confirmed(one, watch.waits))]
        facts = Facts(
            operations=read_operations(fleet.calls),
            faults=[*nemeses.faults, *stalls],
            snapshots=watch.snapshots,
            samples=watch.samples,
            patience_s=self.plan.patience_s,
            incarnations=lives(fleet.incarnations, time.time()),
            complaints=complaints(self.folder) + surprises(fleet.calls),
            blocked=said,
        )
        read_runs(fleet.notes, facts)
        read_database(self.stage.place, facts)
        return facts


def complaints(folder: Path) -> list[str]:
    found = []
    for log in sorted(folder.glob("*.log")):
        text = log.read_text(errors="replace")
        if (complaint := COMPLAINT.search(HARMLESS.sub("", text))) is not None:
            found.append(f"{log.stem}: {text[max(0, complaint.start() - 200) : complaint.start() + 1500]}")
    return found


def blocked(folder: Path) -> list[Fault]:
    """When workers say that their event loop stood still: as it does where a machine has too much to do."""
    return [
        Fault("stall", log.stem, ended - float(said["late"]), ended)
        for log in sorted(folder.glob("w*.log"))
        for said in BLOCKED.finditer(log.read_text(errors="replace"))
        if float(said["late"]) >= STALL_S and (ended := datetime.fromisoformat(said["at"]).timestamp())
    ]


def surprises(calls: Path) -> list[str]:
    """Errors that a client got and that are none of ours."""
    return [f"{note['op']}: {note['why']}" for note in read_notes(calls) if note["kind"] == "surprise"]


@contextlib.contextmanager
def timed(took: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    took[name] = time.monotonic() - began


def keep(folder: Path, stage: Stage, result: Result | None, kept: Path) -> None:
    """Put what is known beside each other, for whoever wants to know what happened."""
    shutil.copytree(folder, kept, dirs_exist_ok=True)
    if stage.server is not None and stage.server.process is not None:
        shutil.copy(stage.server.process.log, kept / "postgresql.log")
    if result is not None:
        (kept / "audit.txt").write_text("\n".join(map(str, result.facts.changes)))
        (kept / "faults.txt").write_text("\n".join(map(str, sorted(result.facts.faults, key=lambda one: one.begins))))
        (kept / "processes.txt").write_text("\n".join(map(str, result.facts.incarnations)))
        lines = [f"{one.name}: {objection}" for one in result.broken for objection in one.objections]
        (kept / "objections.txt").write_text("\n".join(lines))
