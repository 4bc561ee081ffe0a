"""How a process heeds SIGTERM and SIGINT: the first asks it to stop, the second to stop at once, the third ends it.

A thread of its own hears them: whatever a handler does to the event loop, the process can be stopped. The same thread
ends a process that does not end by itself, because a handler ignores its cancellation or a thread cannot be cancelled.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

CLOSING_MAX_S = 20.0
"""How long connections may take to close after the handlers have ended."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def hear_signals(numbers: tuple[signal.Signals, ...]) -> SimpleQueue[int]:
    """A queue that is told of these signals from now on.

    Signals that are ignored stay ignored: that is how a shell, or our supervisor, says that they are not for us.
    """
    heard: SimpleQueue[int] = SimpleQueue()
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: heard.put(number))
    return heard


class StopsOnSignals(threading.Thread):
    def __init__(
        self,
        heard: SimpleQueue[int],
        *,
        stop: Callable[[bool], object],
        is_stuck: Callable[[], bool],
        leave: Callable[[], object],
        grace_s: float,
        farewell_s: float,
    ) -> None:
        """`stop(at_once)` asks; `leave()` ends the process whatever it is doing."""
        super().__init__(name="matrixsched signals", daemon=True)
        self._heard = heard
        self._stop_work = stop
        self._is_stuck = is_stuck
        self._leave = leave
        self._grace_s = grace_s
        self._farewell_s = farewell_s

    def run(self) -> None:
        self._heard.get()
        self._stop_work(False)
        if self._is_heard_within(self._grace_s + self._farewell_s):
            self._stop_work(True)
            if self._is_heard_within(self._farewell_s):
                self._leave()
        if not self._is_stuck():
            self._is_heard_within(CLOSING_MAX_S)
        self._leave()

    def _is_heard_within(self, seconds: float) -> bool:
        try:
            self._heard.get(timeout=seconds)
        except Empty:
            return False
        return True
