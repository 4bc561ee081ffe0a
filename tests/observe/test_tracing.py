"""OpenTelemetry: the call and its attempts, found from one another; on both databases."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import anyio.to_thread
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    NoOpTracerProvider,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
    use_span,
)
from support.drivers import engine_of_either

from matrixsched import App, Context, Retry, RetryAt, call
from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput, InvalidPayload
from matrixsched.observe.tracing import TRACESTATE_CHARACTERS_MAX, instrument
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

SECRET = "hunter2"
ONCE = Retry(max_attempts=1)


class Spans:
    """What was exported, and a tracer of the program's own."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("program")

    def of(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.kind is kind]

    @property
    def producer(self) -> ReadableSpan:
        (span,) = self.of(SpanKind.PRODUCER)
        return span

    @property
    def consumer(self) -> ReadableSpan:
        (span,) = self.of(SpanKind.CONSUMER)
        return span

    def everything(self) -> str:
        return "\n".join(span.to_json() for span in self._exporter.get_finished_spans())


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def app(app: App, spans: Spans) -> App:
    @app.action("greet")
    async def greet(name: str) -> None: ...

    @app.action("refuse", retry=ONCE)
    async def refuse(name: str) -> None:
        raise PermissionError(f"{name}: {SECRET}")

    instrument(app, tracer_provider=spans.provider)
    return app


def link_of(span: ReadableSpan) -> tuple[int, int]:
    (link,) = span.links
    return link.context.trace_id, link.context.span_id


def place_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def test_an_attempt_is_linked_to_the_call_and_begins_a_trace_of_its_own(
    app: App, spans: Spans, clock: ManualClock
) -> None:
    with spans.tracer.start_as_current_span("request") as request:
        scheduled = await app.schedule("greet", "Ada", id="a")
    clock.advance(timedelta(days=90))
    with spans.tracer.start_as_current_span("the worker's own life"):
        await Worker(app).run_due()

    producer, consumer = spans.producer, spans.consumer
    assert producer.name == "schedule greet"
    assert producer.parent is not None
    assert producer.parent.span_id == request.get_span_context().span_id
    assert dict(producer.attributes or {}) == {
        "messaging.system": "matrixsched",
        "messaging.operation.type": "send",
        "messaging.operation.name": "schedule",
        "messaging.destination.name": "greet",
        "messaging.message.id": "a",
        "matrixsched.installation": "default",
        "matrixsched.guid": str(scheduled.guid),
        "matrixsched.changed": True,
    }
    assert consumer.name == "run greet"
    assert consumer.parent is None
    assert link_of(consumer) == place_of(producer)
    assert dict(consumer.attributes or {}) == {
        "messaging.system": "matrixsched",
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.destination.name": "greet",
        "messaging.message.id": "a",
        "matrixsched.installation": "default",
        "matrixsched.guid": str(scheduled.guid),
        "matrixsched.attempt": 1,
        "matrixsched.tick": 0,
        "matrixsched.outcome": "succeeded",
        "matrixsched.state": "done",
        "matrixsched.late_s": timedelta(days=90).total_seconds(),
    }
    assert consumer.status.status_code is StatusCode.UNSET


async def test_many_calls_are_one_span_to_which_all_their_attempts_are_linked(app: App, spans: Spans) -> None:
    await app.schedule_many(call("greet", str(number)) for number in range(3))
    await Worker(app).run_due()
    assert spans.producer.name == "schedule_many"
    assert (spans.producer.attributes or {})["messaging.batch.message_count"] == 3
    assert [link_of(span) for span in spans.of(SpanKind.CONSUMER)] == [place_of(spans.producer)] * 3


async def test_replacing_an_expected_version_is_traced_too(app: App, spans: Spans) -> None:
    first = await app.schedule("greet", "Ada", id="a")
    await app.schedule("greet", "Bob", id="a", expected_guid=first.guid)
    await Worker(app).run_due()
    assert link_of(spans.consumer) == place_of(spans.of(SpanKind.PRODUCER)[1])


async def test_calls_from_synchronous_code_are_traced_alike(app: App, spans: Spans, database_url: str) -> None:
    def synchronously() -> None:
        engine = engine_of_either(database_url)
        with app.sync:
            app.sync.schedule("greet", "Ada")
            app.sync.schedule_many([call("greet", "Bob")])
        with engine.begin() as connection:
            app.sync.schedule("greet", "Cid", connection=connection)
        engine.dispose()

    await anyio.to_thread.run_sync(synchronously)
    await Worker(app).run_due()
    producers = {place_of(span) for span in spans.of(SpanKind.PRODUCER)}
    assert len(producers) == 3
    assert {link_of(span) for span in spans.of(SpanKind.CONSUMER)} == producers


async def test_the_span_of_the_attempt_is_current_in_middlewares_and_handlers_and_threads(
    app: App, spans: Spans
) -> None:
    current: dict[str, int] = {}

    @app.middleware
    async def around(context: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        current["middleware"] = get_current_span().get_span_context().span_id
        return await call_next()

    @app.action("plain")
    def plain() -> None:
        assert threading.current_thread() is not threading.main_thread()
        current["handler"] = get_current_span().get_span_context().span_id

    await app.schedule(plain)
    await Worker(app).run_due()
    _, span_id = place_of(spans.consumer)
    assert current == {"middleware": span_id, "handler": span_id}


async def test_what_a_handler_schedules_is_part_of_its_trace(app: App, spans: Spans) -> None:
    @app.action("parent")
    async def parent() -> None:
        await app.schedule("greet", "Ada")

    await app.schedule(parent)
    await Worker(app).run_due()
    first, second = spans.of(SpanKind.CONSUMER)
    inner = spans.of(SpanKind.PRODUCER)[1]
    assert place_of(inner)[0] == place_of(first)[0]
    assert link_of(second) == place_of(inner)


async def test_of_an_error_only_the_type_is_told(app: App, spans: Spans) -> None:
    await app.schedule("refuse", "Bob")
    await Worker(app).run_due()
    consumer = spans.consumer
    assert consumer.status.status_code is StatusCode.ERROR
    assert consumer.status.description is None
    attributes = consumer.attributes or {}
    assert (attributes["matrixsched.outcome"], attributes["matrixsched.state"]) == ("failed", "failed")
    assert attributes["error.type"] == "PermissionError"
    assert [(event.name, dict(event.attributes or {})) for event in consumer.events] == [
        ("exception", {"exception.type": "PermissionError"})
    ]
    assert SECRET not in spans.everything()


async def test_a_call_that_is_refused_says_so(app: App, spans: Spans) -> None:
    with pytest.raises(InvalidPayload):
        await app.schedule("greet", {SECRET: 1})
    assert spans.producer.status.status_code is StatusCode.ERROR
    assert (spans.producer.attributes or {})["error.type"] == "matrixsched.errors.InvalidPayload"
    assert SECRET not in spans.everything()


async def test_every_attempt_of_an_action_is_a_span(app: App, spans: Spans, clock: ManualClock) -> None:
    @app.action("later")
    async def later(context: Context) -> RetryAt | None:
        return RetryAt(timedelta(seconds=1)) if context.attempt == 1 else None

    await app.schedule(later)
    worker = Worker(app)
    await worker.run_due()
    clock.advance(timedelta(seconds=1))
    await worker.run_due()
    outcomes = [(span.attributes or {})["matrixsched.outcome"] for span in spans.of(SpanKind.CONSUMER)]
    assert outcomes == ["retried", "succeeded"]
    assert {link_of(span) for span in spans.of(SpanKind.CONSUMER)} == {place_of(spans.producer)}


@pytest.mark.parametrize(("limit", "outcome"), [(timedelta(seconds=5), "timed_out"), (timedelta(hours=1), "dropped")])
async def test_an_attempt_that_was_cancelled_ends_with_the_reason(
    app: App, spans: Spans, clock: ManualClock, limit: timedelta, outcome: str
) -> None:
    @app.action("endless", timeout=limit)
    async def endless() -> None:
        await anyio.sleep_forever()

    await app.schedule(endless)
    worker = Worker(app)
    async with anyio.create_task_group() as running:
        await worker.intake.step()
        running.start_soon(worker.runner.run_next)
        await anyio.wait_all_tasks_blocked()
        clock.advance(timedelta(seconds=6) if outcome == "timed_out" else worker.policy.attempt_lease)
        await worker.runner.watch()
    assert (spans.consumer.attributes or {})["matrixsched.outcome"] == outcome
    assert spans.consumer.status.status_code is StatusCode.ERROR
    assert spans.consumer.events == ()


# What is stored.


def remote(state: TraceState | None = None) -> NonRecordingSpan:
    return NonRecordingSpan(SpanContext(0xA1, 0xB2, is_remote=True, trace_flags=TraceFlags(1), trace_state=state))


async def test_what_vendors_add_to_the_trace_comes_along(app: App, spans: Spans) -> None:
    # Quotes and backslashes too: a vendor may send them, with anybody's request, and they must not keep it from a run.
    with use_span(remote(TraceState([("vendor", 'a "b" \\c'), ("other", "2")]))):
        await app.schedule("greet", "Ada", id="a")
    await Worker(app).run_due()
    (link,) = spans.consumer.links
    assert dict(link.context.trace_state) == {"vendor": 'a "b" \\c', "other": "2"}
    stored = (await app.get("a")).spec.terms.trace
    assert stored is not None
    assert stored.partition(" ")[2] == 'vendor=a "b" \\c,other=2'


async def test_what_vendors_add_is_left_out_if_it_is_too_long(app: App, spans: Spans) -> None:
    long = TraceState([(f"vendor{number}", "x" * 200) for number in range(3)])
    assert len(long.to_header()) > TRACESTATE_CHARACTERS_MAX
    with use_span(remote(long)):
        await app.schedule("greet", "Ada")
    await Worker(app).run_due()
    assert link_of(spans.consumer) == place_of(spans.producer)
    assert not spans.consumer.links[0].context.trace_state


async def test_without_a_tracer_that_records_nothing_is_stored(database_url: str, clock: ManualClock) -> None:
    app = App(database_url, clock=clock)
    await app.init(shards=4)
    async with app:
        await app.schedule("greet", "Ada", id="plain")
        assert (await app.get("plain")).spec.terms.trace is None
        instrument(app, tracer_provider=NoOpTracerProvider())
        await app.schedule("greet", "Ada", id="switched off")
        assert (await app.get("switched off")).spec.terms.trace is None


@pytest.mark.parametrize("stored", [None, "not a trace", "00-0-0-00 vendor=1", " "])
async def test_an_attempt_is_traced_whatever_was_stored(app: App, spans: Spans, stored: str | None) -> None:
    app.tracer.carried = lambda: stored  # type: ignore[method-assign]
    await app.schedule("greet", "Ada")
    await Worker(app).run_due()
    assert spans.consumer.links == ()


async def test_a_trace_that_the_worker_does_not_use_does_not_disturb_it(
    app: App, database_url: str, clock: ManualClock
) -> None:
    await app.schedule("greet", "Ada", id="a", timeout=timedelta(seconds=7))
    ran: list[Context] = []
    async with App(database_url, clock=clock) as plain:

        @plain.action("greet")
        async def greet(name: str, context: Context) -> None:
            ran.append(context)

        await Worker(plain).run_due()
    (context,) = ran
    assert context.trace is not None
    assert context.deadline == clock.now() + timedelta(seconds=7)


async def test_an_app_is_traced_once(app: App) -> None:
    with pytest.raises(BadInput, match="traced already"):
        instrument(app)


def test_without_opentelemetry_all_else_works_and_tracing_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "import matrixsched.observe, matrixsched.worker, matrixsched.ops.process\n"
        "try:\n"
        "    import matrixsched.observe.tracing\n"
        "except ImportError as error:\n"
        "    sys.stdout.write(str(error))\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told == "OpenTelemetry is not installed. Install it: pip install 'matrixsched[otel]'."
