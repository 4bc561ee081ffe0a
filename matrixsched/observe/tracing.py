"""OpenTelemetry spans; needs the extra `matrixsched[otel]`, and an SDK set up by the program, as for any library.

    from matrixsched.observe.tracing import instrument

    instrument(app)

A **producer** span stands around every `schedule` and `schedule_many`. Its context (W3C traceparent and tracestate, not
the baggage, which may hold anything) is stored with the action. Every attempt is a **consumer** span, current inside of
middlewares and handlers, in a thread too.

The attempt is *linked* to its producer and begins a trace of its own. As a child it would join a trace that may be
months old and closed long since, a repeating action would grow one trace without end, and whether attempts are sampled
would hang on what was decided for the caller.

Spans hold ids, names of handlers, outcomes and types of errors; never payloads, nor messages of errors, which may hold
them. Rows that carry a trace cannot be read by workers of a library too old to know it: update the workers first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import anyio

try:
    from opentelemetry.context import Context as SpanParent
    from opentelemetry.trace import (
        Link,
        Span,
        SpanKind,
        StatusCode,
        TracerProvider,
        get_current_span,
        get_tracer,
        use_span,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise ImportError("OpenTelemetry is not installed. Install it: pip install 'matrixsched[otel]'.") from None

import matrixsched
from matrixsched.app import App
from matrixsched.calls import Call, Scheduled, ScheduledMany
from matrixsched.context import Context
from matrixsched.errors import BadInput
from matrixsched.events import AttemptDropped, AttemptEnded
from matrixsched.rules.action import Outcome
from matrixsched.tracing import Answered, Untraced

TRACESTATE_CHARACTERS_MAX = 512
"""What W3C asks everybody to pass on; a longer one is left out, for it is stored with every action."""

_W3C = TraceContextTextMapPropagator()
_FAILURES = frozenset({Outcome.FAILED, Outcome.TIMED_OUT})


def instrument(app: App, *, tracer_provider: TracerProvider | None = None) -> Tracing:
    """Trace an application, from now on; `tracer_provider` instead of the global one."""
    if not isinstance(app.tracer, Untraced):
        raise BadInput("this App is traced already: instrument() it once, or every span would come twice")
    return Tracing(app, tracer_provider)


class Tracing:
    def __init__(self, app: App, tracer_provider: TracerProvider | None) -> None:
        self._tracer = get_tracer("matrixsched", matrixsched.__version__, tracer_provider)
        self._usual = {"messaging.system": "matrixsched", "matrixsched.installation": app.installation}
        self._under_way: dict[tuple[UUID, int], Span] = {}
        app.tracer = self
        app.middlewares.insert(0, self._around)  # outermost: the other middlewares are part of the attempt
        app.events.subscribe(AttemptEnded, self._on_attempt_ended)
        app.events.subscribe(AttemptDropped, self._on_attempt_dropped)

    # The producer.

    @contextmanager
    def producing(self, call: Call | None) -> Iterator[Answered]:
        handler = None if call is None else str(getattr(call.handler, "name", call.handler))
        with self._tracer.start_as_current_span(
            "schedule_many" if handler is None else f"schedule {handler}",
            kind=SpanKind.PRODUCER,
            attributes=self._usual | {"messaging.operation.type": "send", "messaging.operation.name": "schedule"},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            if handler is not None:
                span.set_attribute("messaging.destination.name", handler)
            try:
                yield lambda answer: _tell_answer(span, answer)
            except BaseException as error:
                _tell_error(span, error)
                span.set_status(StatusCode.ERROR)
                raise

    def carried(self) -> str | None:
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        traceparent, tracestate = carrier.get("traceparent"), carrier.get("tracestate", "")
        if traceparent is None or not 0 < len(tracestate) <= TRACESTATE_CHARACTERS_MAX:
            return traceparent
        return f"{traceparent} {tracestate}"

    # The consumer.

    async def _around(self, context: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        span = self._tracer.start_span(
            f"run {context.handler}",
            context=SpanParent(),  # none: not even a span in which the worker was started
            kind=SpanKind.CONSUMER,
            links=_links(context.trace),
            attributes=self._usual
            | {
                "messaging.operation.type": "process",
                "messaging.operation.name": "run",
                "messaging.destination.name": context.handler,
                "messaging.message.id": context.id,
                "matrixsched.guid": str(context.guid),
                "matrixsched.attempt": context.attempt,
                "matrixsched.tick": context.tick,
            },
        )
        self._under_way[context.guid, context.attempt] = span
        # It ends with the attempt: only then the outcome is known, and a handler that ignores its limit may go on.
        with use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            try:
                return await call_next()
            except BaseException as error:
                if not isinstance(error, anyio.get_cancelled_exc_class()):
                    _tell_error(span, error)
                raise

    def _on_attempt_ended(self, event: AttemptEnded) -> None:
        span = self._under_way.pop((event.guid, event.attempt), None)
        if span is None:
            return  # its handler was not called
        span.set_attribute("matrixsched.outcome", event.outcome.value)
        span.set_attribute("matrixsched.state", event.state.value)
        span.set_attribute("matrixsched.late_s", event.late.total_seconds())
        if event.outcome in _FAILURES:
            span.set_status(StatusCode.ERROR)
        span.end()

    def _on_attempt_dropped(self, event: AttemptDropped) -> None:
        span = self._under_way.pop((event.guid, event.attempt), None)
        if span is not None:
            span.set_attribute("matrixsched.outcome", "dropped")
            span.set_status(StatusCode.ERROR)
            span.end()


def _tell_answer(span: Span, answer: Scheduled | ScheduledMany) -> None:
    if isinstance(answer, ScheduledMany):
        span.set_attribute("messaging.batch.message_count", answer.total)
        return
    span.set_attribute("messaging.message.id", answer.id)
    span.set_attribute("matrixsched.guid", str(answer.guid))
    span.set_attribute("matrixsched.changed", answer.changed)


def _tell_error(span: Span, error: BaseException) -> None:
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    span.set_attribute("error.type", kind)
    span.add_event("exception", {"exception.type": kind})


def _links(stored: str | None) -> list[Link]:
    """To the span in which the action was scheduled; none if it was not traced, or is not a trace at all."""
    if stored is None:
        return []
    traceparent, _, tracestate = stored.partition(" ")
    producer = get_current_span(_W3C.extract({"traceparent": traceparent, "tracestate": tracestate}))
    found = producer.get_span_context()
    return [Link(found)] if found.is_valid else []
