"""No payload, no message of a handler's error and no password leaves the database by a log, a metric or a trace."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from matrixsched import App, Cancel, Retry, RetryAt, call
from matrixsched.errors import DatabaseError, InvalidPayload
from matrixsched.events import AttemptEnded
from matrixsched.observe import Logs, Metrics, log_to
from matrixsched.observe.logs import logger
from matrixsched.observe.tracing import instrument
from matrixsched.store.transition import Transition
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

CANARY = "canary-7f3a"
DEADLINE_S = 20


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[io.StringIO]:
    """Whatever anybody logs at any level, our own lines and those of libraries."""
    stream = io.StringIO()
    root, everybody = logging.getLogger(), logging.StreamHandler(stream)
    before = (root.level, logger.handlers[:], logger.level, logger.propagate)
    root.addHandler(everybody)
    root.setLevel(logging.DEBUG)
    log_to(stream, level=logging.DEBUG)
    yield stream
    root.removeHandler(everybody)
    root.setLevel(before[0])
    logger.handlers[:], logger.propagate = before[1], before[3]
    logger.setLevel(before[2])
    shown = capsys.readouterr()
    assert CANARY not in shown.out + shown.err


def with_password(url: str) -> str:
    """The same database; its server asks for no password, so any will do."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return url
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0] or "postgres"
    return urlunsplit(parts._replace(netloc=f"{name}:{CANARY}@{host}"))


class Unruly:
    """An application whose handlers put the secret wherever they can."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.left = 6
        self.finished = anyio.Event()
        once = Retry(max_attempts=1)

        @self.app.action("ok")
        async def ok(secret: str) -> None: ...

        @self.app.action("raises", retry=once)
        async def raises(secret: str) -> None:
            raise ValueError(f"{secret} [in {secret}]") from RuntimeError(secret)

        @self.app.action("raises_in_thread", retry=once)
        def raises_in_thread(secret: str) -> None:
            raise KeyError(secret)

        @self.app.action("cancels")
        async def cancels(secret: str) -> Cancel:
            return Cancel(secret)

        @self.app.action("later")
        async def later(secret: str) -> RetryAt:
            return RetryAt(timedelta(days=1), secret)

        @self.app.action("unreadable")
        async def unreadable(number: int) -> None: ...

        self.app.events.subscribe(AttemptEnded, self._count)

    def _count(self, event: AttemptEnded) -> None:
        self.left -= 1
        if self.left == 0:
            self.finished.set()

    async def work(self, url: str) -> None:
        await self.app.schedule("ok", CANARY)
        await self.app.schedule_many(call(name, CANARY) for name in ("raises", "raises_in_thread", "cancels", "later"))
        async with App(url) as elsewhere:  # which knows nothing of what the handler takes
            await elsewhere.schedule("unreadable", CANARY)
        with pytest.raises(InvalidPayload) as refused:
            await self.app.schedule("unreadable", CANARY)
        assert CANARY not in str(refused.value)
        with anyio.fail_after(DEADLINE_S):
            await self.finished.wait()


async def test_nothing_that_is_shown_holds_a_secret(database_url: str, written: io.StringIO) -> None:
    url, exporter, provider = with_password(database_url), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    unruly = Unruly(url)
    app = unruly.app
    await app.init(shards=4)
    Logs(app.events)
    instrument(app, tracer_provider=provider)
    worker = Worker(app, WorkerPolicy(rest_max=timedelta(seconds=0.2)))
    metrics = Metrics(app, worker=worker)
    async with app, anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await unruly.work(url)
        worker.stop()

    log = written.getvalue()
    for line in ("attempt started", "attempt failed", "attempt cancelled", "attempt quarantined", "calls written"):
        assert line in log, "what is to be free of secrets was not even written"
    assert CANARY not in log
    scrape = metrics.exposition().decode()
    assert 'matrixsched_attempts_total{handler="raises",outcome="failed"} 1.0' in scrape
    assert CANARY not in scrape
    spans = "\n".join(span.to_json() for span in exporter.get_finished_spans())
    assert "run raises_in_thread" in spans
    assert CANARY not in spans


class Broken:
    """A store whose driver says more than it should."""

    def __init__(self, store) -> None:
        self._store = store

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def sibling(self):
        return self._store.sibling()

    async def run(self, transition: Transition):
        if transition.name == "acquire_shard":
            raise RuntimeError(f"could not send {CANARY}")
        return await self._store.run(transition)


async def test_what_a_driver_says_is_not_repeated(database_url: str, written: io.StringIO) -> None:
    unruly = Unruly(with_password(database_url))
    app = unruly.app
    await app.init(shards=4)
    app.store = Broken(app.store)
    Logs(app.events)
    worker = Worker(app)
    async with app, anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(DEADLINE_S):
            while "step failed" not in written.getvalue():  # noqa: ASYNC110 - a line tells nobody that it was written
                await anyio.sleep(0.001)
        worker.stop()
    assert "RuntimeError in run" in written.getvalue()
    assert CANARY not in written.getvalue()


async def test_a_database_that_is_away_is_told_without_its_password(written: io.StringIO) -> None:
    app = App(f"postgresql://somebody:{CANARY}@127.0.0.1:1/nowhere")
    with pytest.raises(DatabaseError) as away:
        await app.open()
    assert CANARY not in f"{away.value} {away.value!r} {app.store.description}"
    assert CANARY not in written.getvalue()
    assert away.value.__cause__ is None
