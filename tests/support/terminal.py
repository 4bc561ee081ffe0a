"""A command on a terminal of its own: what it shows, and keys pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from support.processes import environment, until

MAIN = "from matrixsched.ops.cli import main; main()"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FRAME = "\x1b[H"


@dataclass
class Terminal:
    process: subprocess.Popen[bytes]
    screen: int
    shown: str = ""

    def see(self, words: str) -> str:
        """Wait until the last frame has these words; the frame."""
        until(lambda: words in self._look(), f"{words!r} on the screen")
        return self.frame

    def press(self, key: str) -> int:
        """The exit code, for it is expected to end."""
        os.write(self.screen, key.encode())
        until(lambda: (self._look(), self.process.poll() is not None)[1], "the command to end")
        return self.process.returncode

    @property
    def frame(self) -> str:
        return _ESCAPES.sub("", self.shown.rpartition(_FRAME)[2])

    def _look(self) -> str:
        while select.select([self.screen], [], [], 0.05)[0]:
            data = b""
            with suppress(OSError):  # the other end is closed
                data = os.read(self.screen, 1 << 16)
            if not data:
                break
            self.shown += data.decode(errors="replace")
        return self.frame


@contextmanager
def on_a_terminal(*arguments: str, lines: int = 24, columns: int = 80) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES")}
        | {"TERM": "xterm"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
