"""What goes wrong in a run: each nemesis strikes as often as it was asked to, at moments that its seed draws."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path

import psycopg
from support.postgres import PostgresServer

from chaos.fleet import Fleet, Incarnation
from chaos.place import Place
from chaos.proxy import Link, Proxy
from chaos.setting import LEASE_S

WISH_S = 5.0
"""How long is waited for a commit of the kinds whose turn it is that an answer to them is lost."""
BUSY = 20
"""With fewer commits in that time the database was hardly there."""
AGAIN_S = 0.1
"""How soon a nemesis that found nobody to strike looks again."""


@dataclass(frozen=True)
class Fault:
    """That something went wrong, from one moment to another, for one process or (None) for all."""

    kind: str
    writer: str | None
    begins: float
    ends: float
    what: str = ""


@dataclass(frozen=True)
class Amounts:
    """How often each nemesis strikes."""

    kills: int = 0
    stops: int = 0
    restarts: int = 0
    lost_commits: int = 0
    terminations: int = 0
    cuts: int = 0
    """Connections cut, reset, delayed or lost in a black hole."""

    def only_processes(self) -> Amounts:
        """What there is to strike on SQLite."""
        return Amounts(kills=self.kills, stops=self.stops)


@dataclass
class Nemeses:
    place: Place
    fleet: Fleet
    proxy: Proxy | None
    server: PostgresServer | None
    amounts: Amounts
    seconds: float
    """In about which time all of them are through."""
    seed: str
    faults: list[Fault] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._haunt, args=(name, strike), name=name, daemon=True)
            for name, strike in self._strikes().items()
            if getattr(self.amounts, name)
        ]
        self._stops: list[threading.Thread] = []
        self._tried: Counter[str] = Counter()
        self._restart_lots = self._lots("restarts")
        self._restart_at = time.monotonic() + self._gap("restarts", self._restart_lots)

    def _strikes(self) -> dict[str, Callable[[random.Random], int]]:
        """All but restarts: a server ends with the thread that started it, so that one must outlive us."""
        return {
            "kills": self._kill,
            "stops": self._stop,
            "lost_commits": self._lose_commit,
            "terminations": self._terminate,
            "cuts": self._cut,
        }

    # Life.

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def are_through(self) -> bool:
        return all(self.struck[one.name] >= getattr(self.amounts, one.name) for one in fields(Amounts))

    def heal(self) -> None:
        """No more faults, and the end of those that last."""
        self._ending.set()
        for thread in [*self._threads, *self._stops]:
            if thread.ident is not None:
                thread.join()

    def _lots(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}:{name}")

    def _gap(self, name: str, lots: random.Random) -> float:
        return lots.uniform(0.2, 1.8) * self.seconds / max(1, getattr(self.amounts, name))

    def _haunt(self, name: str, strike: Callable[[random.Random], int]) -> None:
        lots = self._lots(name)
        amount = getattr(self.amounts, name)
        next_at = time.monotonic() + self._gap(name, lots)
        while self.struck[name] < amount and not self._ending.wait(max(0.0, next_at - time.monotonic())):
            struck = strike(lots)
            self.struck[name] += struck
            # By the plan, not by when it was carried out: who was held up catches up.
            next_at = next_at + self._gap(name, lots) * struck if struck else time.monotonic() + AGAIN_S

    def _note(self, kind: str, writer: str | None, begins: float, what: str = "", ends: float | None = None) -> None:
        self.faults.append(Fault(kind, writer, begins, time.time() if ends is None else ends, what))

    # Processes.

    def _kill(self, lots: random.Random) -> int:
        if self.struck["kills"] % 40 == 39 and (clients := self.fleet.alive("c")):
            client = lots.choice(clients)
            self._note("kill", client.writer, self.fleet.kill(client))
            self.struck["client kills"] += 1
        victims = [one for one in self.fleet.alive("w") if not one.is_survivor and one.has_started()]
        if not victims:
            return 0
        at_once = lots.choices([1, 2, len(victims)], [85, 12, 3])[0]
        left = self.amounts.kills - self.struck["kills"]
        chosen = lots.sample(victims, min(at_once, len(victims), left))
        for one in chosen:
            self._note("kill", one.writer, self.fleet.kill(one))
        return len(chosen)

    def _stop(self, lots: random.Random) -> int:
        victims = [one for one in self.fleet.alive("w") if not one.stopped and one.has_started()]
        if not victims:
            return 0
        victim, seconds = lots.choice(victims), lots.uniform(0.5, 3) * LEASE_S
        self.fleet.stop(victim)
        thread = threading.Thread(target=self._let_go_on, args=(victim, time.time(), seconds), daemon=True)
        self._stops.append(thread)
        thread.start()
        return 1

    def _let_go_on(self, victim: Incarnation, since: float, seconds: float) -> None:
        holds_up_all = not self.place.is_postgresql and not others_can_write(self.place.path)
        self._ending.wait(max(0.0, since + seconds - time.time()))
        self.fleet.go_on(victim)
        self._note("stop", None if holds_up_all else victim.writer, since, f"{seconds:.1f} s")

    # The server.

    def restart_if_due(self) -> None:
        """To be called now and then by a thread that lives to the end."""
        if self.struck["restarts"] >= self.amounts.restarts or time.monotonic() < self._restart_at:
            return
        assert self.server is not None
        assert self.server.process is not None
        mode = self._restart_lots.choice(("immediate", "fast"))
        away_s = self._restart_lots.choice([0.0, self._restart_lots.uniform(0, 1)])
        since = time.time()
        self.server.process.stop(mode)
        time.sleep(away_s)
        self.server.process.start()
        self._note("restart", None, since, mode)
        self.struck["restarts"] += 1
        self._restart_at += self._gap("restarts", self._restart_lots)

    def _terminate(self, lots: random.Random) -> int:
        link = self._some_link(lots)
        if link is None or link.answers.backend is None:
            return 0
        at = time.time()
        try:
            with psycopg.connect(self.place.url, autocommit=True, connect_timeout=5) as connection:
                found = connection.execute("select pg_terminate_backend(%s)", [link.answers.backend]).fetchone()
        except psycopg.Error:
            return 0
        if not found or not found[0]:
            return 0
        self._note("terminated", link.writer, at)
        return 1

    # The network.

    def _some_link(self, lots: random.Random) -> Link | None:
        assert self.proxy is not None
        links = [link for link in self.proxy.links() if link.writer != "?"]
        return lots.choice(links) if links else None

    def _lose_commit(self, lots: random.Random) -> int:
        assert self.proxy is not None
        before = self.proxy.commits.copy()
        kinds = least_tried(before, self._tried)
        lost = self.proxy.lose_answer(kinds, skip=lots.randint(0, 3), reset=lots.random() < 0.5, within_s=WISH_S)
        if lost is None:
            self._tried.update(absent(kinds, self.proxy.commits - before))
            return 0
        self._tried[lost.what] += 1
        self._note("lost commit", lost.writer, lost.at, lost.what, ends=lost.at)
        return 1

    def _cut(self, lots: random.Random) -> int:
        assert self.proxy is not None
        link = self._some_link(lots)
        if link is None:
            return 0
        since, kind = time.time(), lots.choice(("cut", "reset", "delay", "black hole"))
        match kind:
            case "cut" | "reset":
                self.proxy.cut(link, reset=kind == "reset")
            case "delay":
                self.proxy.delay(link, lots.uniform(0.05, LEASE_S / 2))
                self._ending.wait(lots.uniform(0.5, 1.5) * LEASE_S)
                self.proxy.delay(link, 0)
            case "black hole":
                self.proxy.black_hole(link)
                self._ending.wait(lots.uniform(0.5, 1.5) * LEASE_S)
                self.proxy.open_again(link)
                self.proxy.cut(link)
        self._note(kind, link.writer, since)
        self.struck[kind] += 1
        return 1


def least_tried(commits: Counter[str], tried: Counter[str]) -> list[str]:
    """The kinds of commits that are known by now and whose turn it is: each gets its share, however rare it is."""
    least = min((tried[kind] for kind in commits), default=0)
    return [kind for kind in commits if tried[kind] == least]


def absent(kinds: list[str], came: Counter[str]) -> list[str]:
    """The kinds that are passed over this time, because none of them came although others did."""
    return [kind for kind in kinds if not came[kind]] if came.total() >= BUSY else []


def others_can_write(database: Path) -> bool:
    """Whether the one lock of all writers of a SQLite file can be had."""
    lock_file = os.open(f"{database}.lock", os.O_RDONLY)
    deadline = time.monotonic() + LEASE_S / 4
    try:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.002)
        return False
    finally:
        os.close(lock_file)
