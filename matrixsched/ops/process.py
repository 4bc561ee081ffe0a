"""A worker as a process: it waits for its database, heeds signals, serves metrics, and does end when it is told to."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, NoReturn

import anyio
from anyio.from_thread import BlockingPortal

from matrixsched.app import App
from matrixsched.config import Settings, flag_of, shown
from matrixsched.errors import (
    BadDatabaseUrl,
    DatabaseBusy,
    DatabaseUnavailable,
    HandlersLeaked,
    MatrixSchedError,
    OutcomeUnknown,
)
from matrixsched.observe.health import Readiness, serve_health
from matrixsched.observe.logs import Logs, log, log_to
from matrixsched.observe.looks import Looks
from matrixsched.observe.metrics import Metrics, metrics_are_shared, shared_folder
from matrixsched.ops.loading import load_app
from matrixsched.ops.settings import OF_THE_WORKER
from matrixsched.ops.signals import STOP_SIGNALS, StopsOnSignals, hear_signals
from matrixsched.rules.backoff import backoff_s
from matrixsched.store.opening import is_in_memory
from matrixsched.worker import Worker, WorkerPolicy

PUBLISH_EVERY_S = 1.0
READY_WITHIN_S = 10.0
"""A worker that has not looked for work for so long is not ready."""

WorkerCommand = Literal["worker", "queue-worker"]

_AWAY = (DatabaseUnavailable, DatabaseBusy, OutcomeUnknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """`matrixsched worker` or `queue-worker`, as it was asked for."""

    target: str
    settings: Settings
    policy: WorkerPolicy
    command: WorkerCommand = "worker"

    def log(self) -> None:
        """Send log lines to stderr as the settings say."""
        log_to(as_json=self.settings.log_format == "json", level=logging.getLevelName(self.settings.log_level.upper()))

    def for_child(self) -> list[str]:
        """The same worker as arguments for a child of the supervisor, which serves the metrics of all.

        Every setting is said, because a child would find that the environment or the file ask for processes again.
        """
        values = {name: getattr(self.settings, name) for name in OF_THE_WORKER}
        values |= {"processes": 1, "metrics_port": "off"}
        given = [(flag_of(name), shown(name, value)) for name, value in values.items() if value is not None]
        return [self.command, self.target, *(part for pair in given for part in pair)]


def why_not_ready(looked_at: float | None, now: float) -> str | None:
    """What keeps a worker that looked for work then from being ready now."""
    if looked_at is None:
        return "waiting for the database"
    if now - looked_at > READY_WITHIN_S:
        return f"has not found out about work for {now - looked_at:.0f} s: see the log for the step"
    return None


def run_worker(options: WorkerOptions) -> int:
    """Run until a signal ends it; the exit code."""
    options.log()
    app = load_app(options.target)
    if is_in_memory(app.url):
        raise BadDatabaseUrl("the App's database is in memory, where nobody else can schedule anything")

    async def run() -> int:
        only_queues = options.command == "queue-worker"
        port = options.settings.metrics_port
        return await WorkerProcess(app, options.policy, metrics_port=port, only_queues=only_queues).run()

    has_uvloop = importlib.util.find_spec("uvloop") is not None
    return anyio.run(run, backend_options={"use_uvloop": has_uvloop})


class WorkerProcess:
    def __init__(self, app: App, policy: WorkerPolicy, *, metrics_port: int | None, only_queues: bool = False) -> None:
        self._app = app
        self._policy = policy
        self._metrics_port = metrics_port
        self._heard = hear_signals(STOP_SIGNALS)
        self._opening = anyio.CancelScope()
        self._is_stopping = False
        Logs(app.events)
        self._worker = Worker(app, policy, only_queues=only_queues)
        folder = shared_folder()
        self._looks = None if folder is None else Looks(folder)
        is_measured = metrics_port is not None or metrics_are_shared()
        self._metrics = Metrics(app, worker=self._worker) if is_measured else None

    async def run(self) -> int:
        code, failure = 1, None
        async with self._heeding_signals():
            try:
                with self._served():
                    code = await self._lived()
            except MatrixSchedError as error:
                failure = error
        if failure is not None:
            raise failure  # only here: inside it would come out wrapped in a group
        if self._worker.leaked:
            # Their threads cannot be ended, and Python would wait for them.
            self._leave()
        return code

    async def _lived(self) -> int:
        if not await self._is_opened():
            return 0
        try:
            async with anyio.create_task_group() as beside:
                beside.start_soon(self._publish)
                beside.start_soon(self._heed_worker)
                code = await self._worked()
                beside.cancel_scope.cancel()
        finally:
            await self._app.close()
        return code

    async def _worked(self) -> int:
        try:
            await self._worker.run()
        except HandlersLeaked as error:
            log(logging.ERROR, str(error))
            return 1
        finally:
            self._publish_now()
        return 0

    # The database may be away when the worker starts, as at any other time.

    async def _is_opened(self) -> bool:
        """Wait until the database is there; False if the process was stopped meanwhile."""
        failures = 0
        with self._opening:
            while True:
                try:
                    await self._app.open()
                    return True
                except _AWAY as error:
                    failures += 1
                    await self._rest_after(failures, error)
        return False

    async def _rest_after(self, failures: int, error: Exception) -> None:
        rest_s = backoff_s(failures, first=0.25, most=5.0, spread=self._app.chance.random())
        if failures & (failures - 1) == 0:
            log(logging.WARNING, "waiting for the database", error=str(error), failures=failures)
        await self._app.clock.sleep(rest_s)

    # Metrics and probes.

    @contextmanager
    def _served(self) -> Iterator[None]:
        if self._metrics is None or self._metrics_port is None:
            yield
            return
        with serve_health(
            self._metrics_port, exposition=self._metrics.exposition, readiness=self._readiness
        ) as bound_port:
            log(logging.INFO, "serving /metrics, /healthz and /readyz", port=bound_port)
            yield

    def _readiness(self) -> Readiness:
        if self._is_stopping:
            return Readiness(False, "stopping")
        fault = why_not_ready(self._worker.looked_at, self._app.clock.monotonic())
        return Readiness(fault is None, fault or "ready")

    async def _publish(self) -> None:
        """Numbers that are shared through files must be there before anybody asks."""
        while metrics_are_shared():
            self._publish_now()
            await self._app.clock.sleep(PUBLISH_EVERY_S)

    def _publish_now(self) -> None:
        if self._metrics is not None:
            self._metrics.collect()
        looked_at = self._worker.looked_at
        if self._looks is not None and looked_at is not None:
            self._looks.tell(os.getpid(), looked_at)

    # The end.

    @asynccontextmanager
    async def _heeding_signals(self) -> AsyncIterator[None]:
        async with BlockingPortal() as portal:

            def stop(at_once: bool) -> None:
                with suppress(RuntimeError):  # the event loop has ended already
                    portal.start_task_soon(self._stop, at_once)

            # Until the process ends, and not only this block: closing connections can be interrupted as well.
            StopsOnSignals(
                self._heard,
                stop=stop,
                is_stuck=lambda: self._worker.busy > 0,
                leave=self._leave,
                grace_s=self._policy.stop_grace.total_seconds(),
                farewell_s=self._policy.farewell.total_seconds(),
            ).start()
            yield

    async def _heed_worker(self) -> None:
        """A worker that stops by itself, for want of slots, must come to its end like one that was told to."""
        await self._worker.stopping.wait()
        if not self._is_stopping:
            self._heard.put(signal.SIGTERM)

    def _stop(self, at_once: bool) -> None:
        log(logging.INFO, "stopping at once" if at_once else "stopping: handlers under way may finish")
        self._is_stopping = True
        self._opening.cancel()
        self._worker.stop(at_once=at_once)

    def _leave(self) -> NoReturn:
        log(
            logging.ERROR,
            "leaving without handlers that do not end: what they did not finish is run again",
            running=self._worker.busy,
            leaked=self._worker.leaked,
        )
        logging.shutdown()
        sys.stdout.flush()
        os._exit(1)
