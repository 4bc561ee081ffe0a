"""Worker processes for tests: started as an operator starts them, watched by what they write."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import matrixsched
from matrixsched.ops.evidence import Account, Evidence

TESTS = Path(__file__).resolve().parent.parent
PACKAGE = Path(matrixsched.__file__).resolve().parent.parent
ATTEMPT_LEASE_S = 2.0
SHORT_LEASES = ("--attempt-lease", str(ATTEMPT_LEASE_S), "--shard-lease", "2")
POLL_EVERY_S = 0.02


def until(holds: Callable[[], object], what: str, *, within_s: float = 30.0) -> None:
    """Wait for something to become true; fail with its name when it does not."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within_s:g} s still not: {what}")
        time.sleep(POLL_EVERY_S)


def environment(package: Path = PACKAGE, **more: str) -> dict[str, str]:
    """Ours, with the package under test and the tests' own modules on the path."""
    # Another package than this one must not be hidden by this folder.
    path = {"PYTHONSAFEPATH": "1"} if package != PACKAGE else {}
    return os.environ | {"PYTHONPATH": f"{package}{os.pathsep}{TESTS}"} | path | more


@dataclass
class Scene:
    """One database, one file of notes, and the workers on them."""

    url: str
    folder: Path
    installation: str = "default"
    account: Account = field(default_factory=Account)
    workers: list[WorkerUnderTest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._evidence = Evidence(self.folder / "notes")

    def start_worker(
        self,
        *options: str,
        app: str = "process_app",
        leases: tuple[str, ...] = SHORT_LEASES,
        command: str = "worker",
        package: Path = PACKAGE,
    ) -> WorkerUnderTest:
        """Start one; it is not waited for."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "matrixsched", command, f"support.{app}:app", *leases, *options],
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                env=environment(
                    package,
                    TEST_DATABASE=self.url,
                    TEST_INSTALLATION=self.installation,
                    TEST_EVIDENCE=str(self.folder / "notes"),
                ),
            )
        worker = WorkerUnderTest(process, log)
        self.workers.append(worker)
        return worker

    def look(self) -> Account:
        """What the handlers have noted up to now."""
        self.account.add(self._evidence.read())
        return self.account

    def done(self) -> int:
        return len(self.look().done)

    def logs(self) -> str:
        return "\n".join(worker.said() for worker in self.workers)


@dataclass
class WorkerUnderTest:
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.log.read_text()

    def has_said(self, words: str) -> Callable[[], bool]:
        return lambda: words in self.said()

    def started_pids(self) -> list[int]:
        """The processes in which a worker started, by the name it gave itself."""
        return [int(pid) for pid in re.findall(r"worker started worker=[^ /]*/(\d+)/", self.said())]

    def port(self) -> int:
        """Where it serves its metrics."""
        return int(self.said().partition("port=")[2].split()[0])

    def wait_until_started(self) -> WorkerUnderTest:
        until(lambda: self.started_pids() or self.process.poll() is not None, f"started: {self.said()}")
        assert self.process.poll() is None, self.said()
        return self

    def exit_code(self, *, within_s: float = 30.0) -> int:
        return self.process.wait(within_s)


@contextmanager
def scene(url: str, folder: Path, *, installation: str = "default") -> Iterator[Scene]:
    """Workers that a test leaves behind are killed; what they said is shown if it failed."""
    playing = Scene(url, folder, installation)
    try:
        yield playing
    finally:
        if logs := playing.logs():
            sys.stderr.write(f"{logs}\n")
        for worker in playing.workers:
            worker.process.kill()
            worker.process.wait()
