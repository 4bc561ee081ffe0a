"""Several worker processes: one that dies is started again, after a rest that doubles while it keeps dying.

The first SIGTERM or SIGINT is passed on as SIGTERM, the second too (a worker then stops at once), the third kills. On
Linux the kernel stops the children when the supervisor itself is killed.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from prometheus_client.multiprocess import mark_process_dead

from matrixsched.clock import SystemClock
from matrixsched.observe.health import Readiness, serve_health
from matrixsched.observe.logs import log
from matrixsched.observe.looks import Looks
from matrixsched.observe.metrics import FOLDER_VARIABLE, exposition_of
from matrixsched.ops.exits import WRONG_USE
from matrixsched.ops.process import WorkerOptions, why_not_ready
from matrixsched.ops.signals import STOP_SIGNALS, hear_signals
from matrixsched.rules.backoff import backoff_s

REST_FIRST_S = 0.5
REST_MAX_S = 30.0
STABLE_AFTER_S = 60.0
"""A child that lived so long is not one that keeps dying."""
LOOK_EVERY_S = 1.0


class Child(Protocol):
    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Its exit code; None while it lives."""
        ...

    def send_signal(self, number: int) -> None: ...


class World(Protocol):
    """What the supervisor needs of the world outside; tests bring their own."""

    def spawn(self) -> Child: ...

    def looked_at(self, pid: int) -> float | None:
        """When that child last found out about work; None if it never did."""
        ...

    def buried(self, pid: int) -> None:
        """That child is dead: nothing of it must be left."""
        ...

    def monotonic(self) -> float: ...

    def wait(self, seconds: float) -> int | None:
        """The next signal, at most that long."""
        ...


@dataclass(slots=True)
class _Place:
    """One of the processes that shall run."""

    number: int
    child: Child | None = None
    started_at: float = 0.0
    deaths: int = 0
    restart_at: float = 0.0


class Supervisor:
    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._stops = 0
        self._exit_code = 0
        self._has_worked = False

    @property
    def alive(self) -> int:
        return sum(place.child is not None for place in self._places)

    @property
    def readiness(self) -> Readiness:
        """Asked from another thread: a child may come or go meanwhile."""
        if self._stops:
            return Readiness(False, "stopping")
        children = [place.child for place in self._places]
        alive = [child for child in children if child is not None]
        if len(alive) < len(children):
            return Readiness(False, f"{len(alive)} of {len(children)} processes are alive")
        for child in alive:
            fault = why_not_ready(self._world.looked_at(child.pid), self._world.monotonic())
            if fault is not None:
                return Readiness(False, f"process {child.pid}: {fault}")
        return Readiness(True, f"ready: {len(alive)} processes")

    def run(self) -> int:
        """Keep all places filled until a signal; the exit code."""
        while True:
            for place in self._places:
                self._look_after(place)
            if self._stops and not self.alive:
                return self._exit_code
            heard = self._world.wait(self._rest_s())
            if heard in STOP_SIGNALS:
                self._stop()

    def _look_after(self, place: _Place) -> None:
        if place.child is not None:
            code = place.child.poll()
            if code is not None:
                self._bury(place, place.child, code)
        if place.child is None and not self._stops and self._world.monotonic() >= place.restart_at:
            self._start(place)

    def _start(self, place: _Place) -> None:
        place.started_at = self._world.monotonic()
        try:
            place.child = self._world.spawn()
        except OSError as error:
            self._rest_before_restart(place)
            log(logging.ERROR, "a worker process cannot be started", number=place.number, error=error.strerror)

    def _bury(self, place: _Place, child: Child, code: int) -> None:
        self._has_worked = self._has_worked or self._world.looked_at(child.pid) is not None
        self._world.buried(child.pid)
        place.child = None
        if self._stops:
            # SIGTERM ends a child that has not yet come as far as heeding it, and then nothing was under way.
            is_graceful = code in (0, -signal.SIGTERM)
            self._exit_code = self._exit_code or (0 if is_graceful else 1)
        elif code == WRONG_USE and not self._has_any_worked():
            # It has said what is wrong; to start it again would only say so again.
            self._exit_code = code
            self._stop()
        else:
            rest_s = self._rest_before_restart(place)
            log(
                logging.ERROR,
                "a worker process ended: starting another",
                number=place.number,
                pid=child.pid,
                how=_how_it_ended(code),
                rest_s=round(rest_s, 3),
            )

    def _has_any_worked(self) -> bool:
        """What stops a new child, such as a module half-way through a deployment, is no reason to stop the others."""
        living = [place.child.pid for place in self._places if place.child is not None]
        self._has_worked = self._has_worked or any(self._world.looked_at(pid) is not None for pid in living)
        return self._has_worked

    def _rest_before_restart(self, place: _Place) -> float:
        now = self._world.monotonic()
        place.deaths = 1 if now - place.started_at >= STABLE_AFTER_S else place.deaths + 1
        rest_s = backoff_s(place.deaths, first=REST_FIRST_S, most=REST_MAX_S, spread=0)
        place.restart_at = now + rest_s
        return rest_s

    def _rest_s(self) -> float:
        now = self._world.monotonic()
        restarts = [place.restart_at - now for place in self._places if place.child is None]
        return max(0.0, min([LOOK_EVERY_S, *restarts]))

    def _stop(self) -> None:
        self._stops += 1
        number = signal.SIGTERM if self._stops < 3 else signal.SIGKILL
        log(logging.INFO, "stopping the worker processes", signal=number.name, count=self.alive)
        for place in self._places:
            if place.child is not None:
                place.child.send_signal(number)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


# The world as it is.


def run_supervisor(options: WorkerOptions) -> int:
    """Run the worker's processes until a signal; the exit code."""
    options.log()
    with tempfile.TemporaryDirectory(prefix="matrixsched-metrics-") as folder:
        supervisor = Supervisor(_System(options.for_child(), folder), options.settings.processes)
        with _served(options.settings.metrics_port, supervisor, folder):
            return supervisor.run()


@contextmanager
def _served(port: int | None, supervisor: Supervisor, folder: str) -> Iterator[None]:
    if port is None:
        yield
        return
    with serve_health(port, exposition=exposition_of(folder), readiness=lambda: supervisor.readiness) as bound_port:
        log(logging.INFO, "serving /metrics, /healthz and /readyz", port=bound_port)
        yield


class _System:
    def __init__(self, arguments: Sequence[str], metrics_folder: str) -> None:
        self._command = [sys.executable, "-m", "matrixsched", *arguments]
        self._environment = os.environ | {FOLDER_VARIABLE: metrics_folder}
        self._metrics_folder = metrics_folder
        self._looks = Looks(metrics_folder)
        self._clock = SystemClock()
        self._prepare = _prepare_child()
        self._heard: SimpleQueue[int] = hear_signals((*STOP_SIGNALS, signal.SIGCHLD))

    def spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, env=self._environment, preexec_fn=self._prepare
        )

    def looked_at(self, pid: int) -> float | None:
        return self._looks.of(pid)

    def buried(self, pid: int) -> None:
        self._looks.forget(pid)
        mark_process_dead(pid, path=self._metrics_folder)  # type: ignore[no-untyped-call]

    def monotonic(self) -> float:
        return self._clock.monotonic()  # the one that the children's looks go by

    def wait(self, seconds: float) -> int | None:
        try:
            return self._heard.get(timeout=seconds)
        except Empty:
            return None


def _prepare_child() -> Callable[[], None]:
    """What a child does before it becomes a worker."""
    parent = os.getpid()
    # Loaded before the fork: the child of a process with threads should do as little as possible.
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
    set_parent_death_signal = 1

    def prepare() -> None:
        # Ctrl-C reaches all processes of a terminal. To a child it comes from us, once and not twice.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if prctl is not None:
            prctl(set_parent_death_signal, signal.SIGTERM)
            if os.getppid() != parent:  # it died before we could ask
                os._exit(1)

    return prepare
