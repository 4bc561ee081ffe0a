"""The processes of a run: workers and clients, started as operators start them, and started again when they died."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from chaos.nursery import Child, Nursery
from chaos.place import Place
from chaos.setting import LEASE_S

CONCURRENCY = 20
PROCESSORS = 2


@dataclass
class Incarnation:
    """A process, from its start to its end."""

    writer: str
    """Its name in notes, audit and proxy: never given twice, as numbers of processes are."""
    process: Child
    log: Path
    started_at: float
    ended_at: float | None = None
    killed: bool = False
    asked_to_end: bool = False
    is_survivor: bool = False
    stopped: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_worker(self) -> bool:
        return self.writer.startswith("w")

    @property
    def is_alive(self) -> bool:
        return self.ended_at is None and self.process.poll() is None

    @property
    def ended_badly(self) -> bool:
        """By itself, or not well when it was asked to; those that we killed did as they should."""
        return not self.killed and (not self.asked_to_end or self.process.returncode != 0)

    @property
    def is_starting(self) -> bool:
        return self.is_worker and self.is_alive and not self.has_started()

    def has_started(self) -> bool:
        return self.is_alive and "worker started" in self.log.read_text(errors="replace")


@dataclass
class Fleet:
    place: Place
    folder: Path
    seed: str
    incarnations: list[Incarnation] = field(default_factory=list)
    is_stopping: bool = False

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._rate = 0.0
        self._nursery = Nursery()

    @property
    def notes(self) -> Path:
        return self.folder / "notes.jsonl"

    @property
    def calls(self) -> Path:
        return self.folder / "calls.jsonl"

    def start_worker(self, *more_options: str, is_survivor: bool = False, failpoint: str | None = None) -> Incarnation:
        command = ["worker", "chaos.app:app"]
        options = {
            "--attempt-lease": f"{LEASE_S:g}",
            "--shard-lease": f"{LEASE_S:g}",
            "--visibility-timeout": f"{LEASE_S:g}",
            "--concurrency": f"{CONCURRENCY}",
            "--processors": f"{PROCESSORS}",
        }
        more = {} if failpoint is None else {"MATRIXSCHED_FAILPOINT": failpoint}
        one = self._start("w", [*command, *(part for pair in options.items() for part in pair), *more_options], more)
        one.is_survivor = is_survivor
        return one

    def start_client(self, rate: float) -> Incarnation:
        self._rate = rate
        return self._start("c", [], {"CHAOS_RATE": f"{rate}"})

    def _start(self, kind: str, command: list[str], more: dict[str, str]) -> Incarnation:
        with self._lock:
            writer = f"{kind}{len(self.incarnations)}"
            log = self.folder / f"{writer}.log"
            env = {
                "CHAOS_DATABASE": self.place.proxied_url,
                "CHAOS_WRITER": writer,
                "CHAOS_NOTES": str(self.notes),
                "CHAOS_CALLS": str(self.calls),
                "CHAOS_SEED": self.seed,
            }
            log.touch()
            process = self._nursery.start(writer, command, env | more, log)
            one = Incarnation(writer, process, log, time.time())
            self.incarnations.append(one)
            return one

    def alive(self, kind: str) -> list[Incarnation]:
        with self._lock:
            return [one for one in self.of(kind) if one.is_alive]

    def of(self, kind: str) -> list[Incarnation]:
        with self._lock:
            return [one for one in self.incarnations if one.writer.startswith(kind)]

    def kill(self, one: Incarnation) -> float:
        """Kill -9, and start another one in its place; when it died."""
        with self._lock:
            at = time.time()
            one.killed = True
            one.process.kill()
            one.process.wait()
            one.ended_at = time.time()
            if not self.is_stopping:
                self.start_worker() if one.is_worker else self.start_client(self._rate)
            return at

    def stop(self, one: Incarnation) -> None:
        one.stopped = True
        one.process.send_signal(signal.SIGSTOP)

    def go_on(self, one: Incarnation) -> None:
        one.stopped = False
        if one.is_alive:
            one.process.send_signal(signal.SIGCONT)

    def end(self, kind: str, within_s: float = 60.0) -> list[Incarnation]:
        """Ask all of a kind to end, and wait; those that did not end well."""
        self.is_stopping = True
        ending = self.alive(kind)
        deadline = time.monotonic() + within_s
        for one in ending:
            self.go_on(one)
        while any(one.is_starting for one in ending) and time.monotonic() < deadline:
            time.sleep(0.05)  # who is only just loading its modules does not heed signals yet
        for one in ending:
            one.asked_to_end = one.is_alive
            one.process.terminate()
        for one in ending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(max(0.1, deadline - time.monotonic()))
            one.ended_at = one.ended_at or time.time()
        return [one for one in ending if one.ended_badly]

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_stopping = True
        for one in self.incarnations:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        self._nursery.close()
