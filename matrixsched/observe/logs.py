"""One logger, `matrixsched`, told by events. Lines carry facts, never payloads, and of a handler's error only its type
and place: what a handler writes into a message is nobody's business but its own."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import IO

from matrixsched.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    BacklogSampled,
    BatchEnded,
    BatchTaken,
    CallsWritten,
    ClaimsGivenBack,
    ClaimsLost,
    Events,
    GatesSampled,
    HandlerLeaked,
    InterruptionsFound,
    LoopSampled,
    OutcomesRecorded,
    ProcessorsAssigned,
    ProcessorsRunning,
    QueueHandlerFailed,
    QueuesSampled,
    SemaphoreBalanced,
    SemaphoresSampled,
    ShardSynced,
    SlotsVoided,
    SlowDownTold,
    StepFailed,
    TaskSetAside,
    TemplatePaused,
    TemplateResumed,
    Tidied,
    WindowPlanned,
    WorkerStarted,
    WorkerStopped,
)
from matrixsched.rules.action import Outcome, State

logger = logging.getLogger("matrixsched")

LOOP_BLOCKED_S = 1.0
"""A loop that is late by so much keeps all other handlers waiting."""

TOLD_AGAIN_AFTER = timedelta(seconds=1)

_FACTS = "matrixsched_facts"
_OUR_WORDS = "the handler "
"""How the worker begins when it was not an error that made an attempt fail; no type has a space in its name."""
_ERROR_TYPE = re.compile(r"[A-Za-z_]\w*")
_ERROR_PLACE = re.compile(r"\[in ([^\[\]]+)\]$")
_EXPECTED = frozenset({Outcome.SUCCEEDED, Outcome.RETRIED})


def log(level: int, message: str, **facts: object) -> None:
    """A line of ours: the message for people, the facts for machines."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s", message, extra={_FACTS: facts})


def log_to(stream: IO[str] | None = None, *, as_json: bool = False, level: int = logging.INFO) -> None:
    """Send our lines to a stream (stderr by default); instead of whatever was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else PlainFormatter())
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


def _facts(record: logging.LogRecord) -> dict[str, object]:
    facts: dict[str, object] = getattr(record, _FACTS, {})
    return facts


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={_shown(value)}" for name, value in _facts(record).items() if value is not None)
        return f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}{facts}"


def _shown(value: object) -> str:
    """A value that ends where it seems to: spaces and line breaks are quoted."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text, ensure_ascii=False)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(line | _facts(record), ensure_ascii=False, default=str)


class Logs:
    """Turns events into lines. What comes with every attempt, statement or sample is a line at DEBUG level only, and is
    not even heard if that is off when this is made."""

    def __init__(self, events: Events) -> None:
        events.subscribe(WorkerStarted, self._on_worker_started)
        events.subscribe(WorkerStopped, self._on_worker_stopped)
        events.subscribe(AttemptEnded, self._on_attempt_ended)
        events.subscribe(ShardSynced, self._on_shard_synced)
        events.subscribe(OutcomesRecorded, self._on_outcomes_recorded)
        events.subscribe(ClaimsLost, self._on_claims_lost)
        events.subscribe(ClaimsGivenBack, self._on_claims_given_back)
        events.subscribe(InterruptionsFound, self._on_interruptions_found)
        events.subscribe(HandlerLeaked, self._on_handler_leaked)
        events.subscribe(StepFailed, self._on_step_failed)
        events.subscribe(Tidied, self._on_tidied)
        events.subscribe(LoopSampled, self._on_loop_sampled)
        events.subscribe(AttemptDropped, self._on_attempt_dropped)
        events.subscribe(WindowPlanned, self._on_window_planned)
        events.subscribe(SlotsVoided, self._on_slots_voided)
        events.subscribe(SlowDownTold, self._on_slow_down_told)
        events.subscribe(TemplatePaused, self._on_template_paused)
        events.subscribe(TemplateResumed, self._on_template_resumed)
        events.subscribe(SemaphoreBalanced, self._on_semaphore_balanced)
        events.subscribe(ProcessorsRunning, self._on_processors_running)
        events.subscribe(BatchEnded, self._on_batch_ended)
        events.subscribe(QueueHandlerFailed, self._on_queue_handler_failed)
        events.subscribe(TaskSetAside, self._on_task_set_aside)
        events.subscribe(ProcessorsAssigned, self._on_processors_assigned)
        if logger.isEnabledFor(logging.DEBUG):
            events.subscribe(AttemptStarted, self._on_attempt_started)
            events.subscribe(CallsWritten, self._on_calls_written)
            events.subscribe(BacklogSampled, self._on_backlog_sampled)
            events.subscribe(GatesSampled, self._on_gates_sampled)
            events.subscribe(SemaphoresSampled, self._on_semaphores_sampled)
            events.subscribe(BatchTaken, self._on_batch_taken)
            events.subscribe(QueuesSampled, self._on_queues_sampled)
        self._slowed_until: dict[str, datetime] = {}

    def _on_worker_started(self, event: WorkerStarted) -> None:
        log(
            logging.INFO,
            "worker started",
            worker=event.worker,
            concurrency=event.concurrency,
            handlers=",".join(event.handlers),
            queues=",".join(event.queues) or None,
        )

    def _on_worker_stopped(self, event: WorkerStopped) -> None:
        log(
            logging.INFO,
            "worker stopped",
            worker=event.worker,
            given_back=event.given_back,
            cancelled=event.cancelled,
        )

    def _on_attempt_ended(self, event: AttemptEnded) -> None:
        if event.outcome in _EXPECTED and not logger.isEnabledFor(logging.DEBUG):
            return
        log(
            _level(event),
            f"attempt {event.outcome.value.replace('_', ' ')}",
            id=event.id,
            handler=event.handler,
            attempt=event.attempt,
            state=event.state.value,
            error=_kind_and_place(event),
            run_s=round(event.run_s, 6),
            late_s=round(event.late.total_seconds(), 6),
            next_at=event.next_at.isoformat() if event.next_at else None,
        )

    def _on_attempt_started(self, event: AttemptStarted) -> None:
        log(
            logging.DEBUG,
            "attempt started",
            id=event.id,
            handler=event.handler,
            attempt=event.attempt,
            late_s=round(event.late.total_seconds(), 6),
        )

    def _on_attempt_dropped(self, event: AttemptDropped) -> None:
        log(
            logging.WARNING,
            "attempt dropped: it is run again when its lease ends",
            id=event.id,
            handler=event.handler,
            attempt=event.attempt,
        )

    def _on_calls_written(self, event: CallsWritten) -> None:
        log(logging.DEBUG, "calls written", calls=event.calls, coalesced=event.coalesced)

    def _on_backlog_sampled(self, event: BacklogSampled) -> None:
        log(
            logging.DEBUG,
            "backlog sampled",
            due=event.due,
            oldest_due_s=round(event.oldest_due_s, 3),
            oldest_open_s=round(event.oldest_open_s, 3),
            oldest_parked_s=round(event.oldest_parked_s, 3),
        )

    def _on_loop_sampled(self, event: LoopSampled) -> None:
        if event.late_s >= LOOP_BLOCKED_S:
            log(
                logging.WARNING,
                "the event loop was blocked: a handler that waits without await should be a plain function",
                late_s=round(event.late_s, 3),
            )

    def _on_shard_synced(self, event: ShardSynced) -> None:
        level = logging.INFO if event.lost else logging.DEBUG
        message = "shard lost: another worker took it, or the database did not answer" if event.lost else "shard synced"
        log(level, message, shard=event.shard, moved=event.moved, claimed=event.claimed, held_s=round(event.held_s, 6))

    def _on_outcomes_recorded(self, event: OutcomesRecorded) -> None:
        log(
            logging.DEBUG,
            "outcomes recorded",
            recorded=event.recorded,
            superseded=event.superseded,
            lost=event.lost,
            busy=event.busy,
        )

    def _on_claims_lost(self, event: ClaimsLost) -> None:
        log(logging.WARNING, "attempts lost: their leases ended, others run them again", count=event.count)

    def _on_claims_given_back(self, event: ClaimsGivenBack) -> None:
        log(logging.DEBUG, "claims given back: they could not be started soon enough", count=event.count)

    def _on_interruptions_found(self, event: InterruptionsFound) -> None:
        log(
            logging.WARNING,
            "attempts found interrupted: their worker died or lost them, they are run again",
            count=sum(event.of.values()),
            handlers=",".join(sorted(event.of)),
        )

    def _on_handler_leaked(self, event: HandlerLeaked) -> None:
        log(
            logging.ERROR,
            "handler ignores its cancellation: give its own calls a time limit",
            id=event.id,
            handler=event.handler,
            leaked=event.leaked,
        )

    def _on_step_failed(self, event: StepFailed) -> None:
        # A database that is away for an hour is a dozen lines, not thousands.
        if event.failures & (event.failures - 1) == 0:
            log(
                logging.WARNING,
                "step failed and will be repeated",
                step=event.step,
                failures=event.failures,
                rest_s=round(event.rest_s, 3),
                error=event.error,
            )

    def _on_tidied(self, event: Tidied) -> None:
        facts = asdict(event)
        del facts["expired_of"]
        log(logging.DEBUG, "tidied", **facts)

    # Semaphores.

    def _on_semaphore_balanced(self, event: SemaphoreBalanced) -> None:
        facts = asdict(event) | {"took_s": round(event.took_s, 6)}
        facts["semaphore"] = facts.pop("key")
        if event.lapsed:
            log(logging.WARNING, "places lost: they were not renewed in time", **facts)
        else:
            log(logging.DEBUG, "semaphore balanced", **facts)

    def _on_semaphores_sampled(self, event: SemaphoresSampled) -> None:
        samples = event.samples
        log(
            logging.DEBUG,
            "semaphores sampled",
            semaphores=len(samples),
            held=sum(one.held for one in samples),
            asked=sum(one.asked for one in samples),
            waiting=sum(one.waiting for one in samples),
        )

    # Queues.

    def _on_processors_running(self, event: ProcessorsRunning) -> None:
        log(logging.INFO, "job processors running", count=event.count)

    def _on_batch_taken(self, event: BatchTaken) -> None:
        log(logging.DEBUG, "batch taken", queue=event.name, tasks=event.tasks)

    def _on_batch_ended(self, event: BatchEnded) -> None:
        level, message = logging.DEBUG, "batch ended"
        if event.is_overlong:
            level, message = (
                logging.WARNING,
                "batch took long: a worker that is to stop waits for it, so take fewer tasks",
            )
        if event.stale:
            level, message = logging.WARNING, "tasks lost before they were settled: others have them, or will"
        if not logger.isEnabledFor(level):
            return
        facts = asdict(event) | {"duration_s": round(event.duration_s, 6), "cycle_s": round(event.cycle_s, 6)}
        queue, untold = facts.pop("name"), {"queue", "stated_s", "last_error"}  # what handlers say is for subscribers
        log(level, message, **{"queue": queue} | {key: facts[key] for key in facts if key not in untold})

    def _on_queue_handler_failed(self, event: QueueHandlerFailed) -> None:
        log(
            logging.WARNING,
            "handler of a queue failed: what it left unsettled comes back",
            queue=event.name,
            tasks=event.tasks,
            error=event.error,
        )

    def _on_task_set_aside(self, event: TaskSetAside) -> None:
        # Reasons that handlers give stay in the database.
        reason = event.reason if event.unreadable else None
        log(logging.WARNING, "task set aside", queue=event.name, task=event.task_id, reason=reason)

    def _on_processors_assigned(self, event: ProcessorsAssigned) -> None:
        log(
            logging.INFO if event.moved else logging.DEBUG,
            "processors assigned",
            moved=event.moved,
            workers=len(event.assigned),
            processors=",".join(f"{queue}:{count}" for queue, count in event.processors.items()),
            ready=sum(load.ready for load in event.loads),
            took_s=round(event.took_s, 6),
        )

    def _on_queues_sampled(self, event: QueuesSampled) -> None:
        samples = event.samples
        log(
            logging.DEBUG,
            "queues sampled",
            queues=len(samples),
            ready=sum(one.ready for one in samples),
            taken=sum(one.taken for one in samples),
            delayed=sum(one.delayed for one in samples),
            dead=sum(one.dead for one in samples),
        )

    # Gates.

    def _on_gates_sampled(self, event: GatesSampled) -> None:
        held: Counter[str] = Counter()
        for (gate, _), count in event.report.held.items():
            held["open" if gate is None else gate.value] += count
        facts = {f"held_{gate}": count for gate, count in sorted(held.items())}
        paused, slowed = len(event.report.paused), len(event.report.slowed)
        log(logging.DEBUG, "gates sampled", templates_paused=paused, limits_slowed=slowed, **facts)

    def _on_window_planned(self, event: WindowPlanned) -> None:
        log(logging.DEBUG, "quota window planned", worker=event.worker, took_s=round(event.took_s, 6))

    def _on_slots_voided(self, event: SlotsVoided) -> None:
        log(logging.DEBUG, "slots missed: actions that had passed their gates wait for others", count=event.count)

    def _on_slow_down_told(self, event: SlowDownTold) -> None:
        # Many handlers are told at once, each a little later than the other: that is one line a second.
        before = self._slowed_until.get(event.limit)
        if before is None or event.until - before >= TOLD_AGAIN_AFTER:
            self._slowed_until[event.limit] = event.until
            rate = "nothing" if event.rate is None else str(event.rate)
            log(logging.WARNING, "told to slow down", limit=event.limit, to=rate, until=event.until.isoformat())

    def _on_template_paused(self, event: TemplatePaused) -> None:
        until = None if event.until is None else event.until.isoformat()
        log(logging.INFO, "template paused", template=event.template, until=until)

    def _on_template_resumed(self, event: TemplateResumed) -> None:
        log(logging.INFO, "template resumed", template=event.template)


def _level(event: AttemptEnded) -> int:
    if event.state in (State.FAILED, State.QUARANTINED):
        return logging.ERROR
    if event.outcome in _EXPECTED or event.outcome is Outcome.CANCELLED:
        return logging.DEBUG
    return logging.WARNING


def _kind_and_place(event: AttemptEnded) -> str | None:
    """Of an error as the worker describes it ("Type: message [in place]") the first and the last part."""
    if event.error is None or event.outcome is not Outcome.FAILED:
        return None  # the outcome says it all; reasons that handlers give stay in the database
    if event.error.startswith(_OUR_WORDS):
        return event.error
    kind = _ERROR_TYPE.match(event.error)
    place = _ERROR_PLACE.search(event.error)
    return " in ".join(found for found in (kind and kind[0], place and place[1]) if found)
