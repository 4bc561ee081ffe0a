"""The loop of `matrixsched top`: look, show, rest, until somebody presses q."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import anyio
from rich.live import Live

from matrixsched.app import App
from matrixsched.errors import MatrixSchedError
from matrixsched.ops.remedies import spoken
from matrixsched.ops.render import console, print_table, show_sections
from matrixsched.ops.top.frame import frame
from matrixsched.ops.top.looking import Look, look

ANSWER_MAX_S = 10.0
LINES_IN_A_PIPE = 1000


class Watch:
    """Looks again and again; an outage is part of what is seen."""

    def __init__(self, app: App, every: timedelta) -> None:
        self._app = app
        self._every = every
        self._is_open = False
        self.seen: Look | None = None
        self.failure: str | None = None

    async def step(self) -> None:
        try:
            with anyio.fail_after(ANSWER_MAX_S):
                if not self._is_open:
                    await self._app.open()
                    self._is_open = True
                self.seen = await look(self._app, before=self.seen, every=self._every)
            self.failure = None
        except MatrixSchedError as error:
            self.failure = spoken(error)
        except TimeoutError:
            self.failure = f"the database does not answer within {ANSWER_MAX_S:g} s."

    async def close(self) -> None:
        if self._is_open:
            await self._app.close()


async def shown_once(app: App, every: timedelta, *, as_json: bool) -> None:
    """One frame; what goes wrong is an error."""
    async with app:
        seen = await look(app, before=None, every=every)
    if as_json:
        show_sections(seen.sections(), as_json=True)
        return
    whole = frame(seen, failure=None, every_s=every.total_seconds(), height=LINES_IN_A_PIPE)
    print_table(whole)


async def shown_live(app: App, every: timedelta) -> None:
    watch, every_s = Watch(app, every), every.total_seconds()
    screen = console()
    screen.soft_wrap = False
    try:
        with _keys(), Live(console=screen, screen=True, auto_refresh=False) as live:
            while True:
                await watch.step()
                height = screen.size.height
                live.update(frame(watch.seen, failure=watch.failure, every_s=every_s, height=height - 1), refresh=True)
                if await _is_ended_within(every_s):
                    return
    finally:
        with anyio.CancelScope(shield=True):
            await watch.close()


@contextmanager
def _keys() -> Iterator[None]:
    """Keys are read as they are pressed, and not shown."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def _is_ended_within(seconds: float) -> bool:
    """Whether somebody presses q in that time."""
    with anyio.move_on_after(seconds):
        if not sys.stdin.isatty():
            await anyio.sleep_forever()
        while True:
            await anyio.wait_readable(sys.stdin)
            pressed = os.read(sys.stdin.fileno(), 1024)
            if b"q" in pressed or not pressed:
                return True
    return False
