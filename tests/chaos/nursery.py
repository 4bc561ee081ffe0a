"""Processes from one that has loaded all modules: a run starts hundreds, and loading takes longer than all they do.

    python -m chaos.nursery         a line of JSON for each process to start; tells by lines when one was born and ended

What is forked has nothing of ours but modules: no thread, no connection. It goes on as `matrixsched` with the arguments
it is given, or as a client. All of them end with the nursery, and that with whoever started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from support.postgres import die_with_parent
from support.processes import environment


class Child:
    """A process of the nursery, asked like one of subprocess."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def note_end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a child", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Nursery:
    """Our end of it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            start_new_session=True,  # Ctrl-C is for us: they are ended in order
            text=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self._children: dict[int, Child] = {}
        self._born: dict[str, Child] = {}
        self._news = threading.Condition()
        self._hearing = threading.Thread(target=self._hear, name="nursery", daemon=True)
        self._hearing.start()

    def start(self, name: str, arguments: list[str], env: dict[str, str], log: Path) -> Child:
        """Start `matrixsched` with these arguments or, without any, a client; `name` must be new."""
        assert self._process.stdin is not None
        order = {"name": name, "arguments": arguments, "env": env, "log": str(log)}
        with self._news:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            if not self._news.wait_for(lambda: name in self._born, timeout=60):
                raise AssertionError(f"the nursery did not start {name}")
            return self._born[name]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._hearing.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._news:
                if "name" in told:
                    self._born[told["name"]] = self._children[told["pid"]] = Child(told["pid"])
                    self._news.notify_all()
                else:
                    self._children.pop(told["pid"]).note_end(told["code"])


def main() -> None:
    _load()
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only so that it interrupts, and wakes us through the pipe below
    wakes, woken = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(woken)
    _live(wakes)


def _load() -> None:
    """What workers and clients load."""
    import asyncpg  # noqa: F401

    import chaos.client  # noqa: F401
    import matrixsched.ops.commands.working
    import matrixsched.ops.process  # noqa: F401

    with contextlib.suppress(ImportError):
        import uvloop  # noqa: F401


def _live(wakes: int) -> None:
    import select

    rest = b""
    while True:
        ready, _, _ = select.select([0, wakes], [], [])
        if wakes in ready:
            os.read(wakes, 4096)
        _reap()
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _bear(json.loads(line))


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _tell(pid=pid, code=os.waitstatus_to_exitcode(status))


def _bear(order: dict[str, Any]) -> None:
    pid = os.fork()
    if pid:
        _tell(name=order["name"], pid=pid)
    else:
        _become(order)


def _tell(**told: object) -> None:
    os.write(1, json.dumps(told).encode() + b"\n")


def _become(order: dict[str, Any]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        if (dies := die_with_parent(signal.SIGKILL)) is not None:
            dies()
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDWR)
        for here, there in ((nothing, 0), (nothing, 1), (log, 2)):
            os.dup2(here, there)
        os.environ |= order["env"]
        code = _run(order["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(arguments: list[str]) -> int:
    if arguments:
        sys.argv = ["matrixsched", *arguments]
        runpy.run_module("matrixsched", run_name="__main__", alter_sys=False)
    else:
        from chaos.client import main as live

        live()
    return 0


if __name__ == "__main__":
    main()
