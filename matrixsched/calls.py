"""What a caller asks to be scheduled, and what is answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid5

from matrixsched.errors import BadInput, InvalidTime, shown
from matrixsched.handlers import Handler
from matrixsched.rules.action import UNGATED, Action, State, Terms
from matrixsched.rules.arguments import each
from matrixsched.rules.lanes import Lane
from matrixsched.rules.limits import check_key
from matrixsched.rules.names import check_name
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import Repeat, begin, check_repeat, next_tick, upcoming
from matrixsched.rules.semaphore import check_unreserved
from matrixsched.rules.times import check_duration, check_integer, check_time
from matrixsched.rules.zones import check_zone
from matrixsched.store.values import ActionFilter

Exists = Literal["replace", "keep", "error"]
Request = Literal["schedule", "replace", "reschedule", "run_now", "cancel"]

PRIORITY_MAX = 1_000_000
_NO_TERMS = Terms()
_REQUESTS = UUID("6ba3c0ee-52f1-4e7e-9a0c-8c3f1d6b7a21")


class Call(NamedTuple):
    """One action to be scheduled; made by `call()`, for `schedule_many`."""

    handler: Handler[..., Any] | str
    payload: object = None
    id: str | None = None
    at: datetime | None = None
    delay: timedelta | None = None
    repeat: Repeat | None = None
    retry: Retry | None = None
    timeout: timedelta | None = None
    start_within: timedelta | None = None
    expires_at: datetime | None = None
    priority: int = 0
    template: str | None = None
    """Whose messages it is one of: its quota decides when it goes."""
    zone: str | None = None
    """Of the recipient, whose time of the day counts; None: the template's."""
    limit: str | None = None
    """A key of the caller's choice: actions of one key share a limit."""
    payload_version: int | None = None
    """Of a payload for a handler that is not registered here; else it is the handler's own."""
    request_id: str | None = None


def call(handler: Handler[..., Any] | str, payload: object = None, **options: Any) -> Call:
    """One action for `schedule_many`; takes the options of `schedule`."""
    return Call(handler=handler, payload=payload, **options)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What became of a call."""

    id: str
    guid: UUID
    """Of the version that this call wrote, or else of that which it found; for compare-and-set."""
    created: bool
    """There was no action of that id before. Not said where the answer was lost and others have written often since."""
    changed: bool
    """This call wrote; False when it found the action kept, finished, or its own request carried out before."""
    running: bool
    """An attempt, perhaps of an older version, is under way: it is not stopped, the new version waits for its end."""


@dataclass(frozen=True, slots=True)
class ScheduledMany:
    """How many calls there were, and what became of them."""

    total: int = 0
    created: int = 0
    replaced: int = 0
    kept: int = 0

    def __add__(self, more: ScheduledMany) -> ScheduledMany:
        return ScheduledMany(
            self.total + more.total,
            self.created + more.created,
            self.replaced + more.replaced,
            self.kept + more.kept,
        )


class Timing(NamedTuple):
    """When an action begins, checked: at an instant, or after a delay by the database's clock."""

    at: datetime | None
    delay: timedelta


_AT_ONCE = Timing(None, timedelta(0))


def check_timing(at: datetime | None, delay: timedelta | None) -> Timing:
    if at is None and delay is None:
        return _AT_ONCE
    if at is not None and delay is not None:
        raise InvalidTime("at and delay", "are both given: choose one")
    return Timing(
        None if at is None else check_time("at", at),
        _AT_ONCE.delay if delay is None else check_duration("delay", delay),
    )


def check_call(call: Call) -> Timing:
    """Refuse what cannot be scheduled; the payload is checked where it is encoded."""
    if call.id is not None:
        check_unreserved("id", check_name("id", call.id))
    timing = check_timing(call.at, call.delay)
    if call.timeout is not None:
        check_duration("timeout", call.timeout, zero=False)
    if call.start_within is not None:
        check_duration("start_within", call.start_within, zero=False)
    if call.retry is not None and not isinstance(call.retry, Retry):
        raise BadInput(f"retry must be a Retry, for example Retry(max_attempts=3), not {type(call.retry).__name__}")
    if call.repeat is not None:
        jitter = check_repeat(call.repeat).jitter
        if call.start_within is not None and call.start_within <= jitter:
            raise BadInput("start_within must be longer than the jitter of repeat, or ticks are missed by chance")
    if call.expires_at is not None:
        expires_at = check_time("expires_at", call.expires_at)
        if timing.at is not None and expires_at <= timing.at:
            raise InvalidTime("expires_at", "is not after the time the action is due")
    check_integer("priority", call.priority, least=0, most=PRIORITY_MAX)
    _check_gates(call)
    return timing


def _check_gates(call: Call) -> None:
    if call.template is not None:
        check_name("template", call.template)
    if call.zone is not None:
        check_zone(call.zone)
        if call.template is None:
            raise BadInput("zone is the recipient's, and only a template asks for it: pass template=, or leave it out")
    if call.limit is not None:
        check_key(call.limit)


def gate_of(call: Call, handler: str) -> str:
    """The lane in which the action waits when it is due: the name says which gates it must pass."""
    if call.template is None and call.limit is None:
        return UNGATED
    return Lane(handler=handler, priority=call.priority, key=call.limit, template=call.template, zone=call.zone).name


def check_expected_guid(guid: object) -> UUID | None:
    if guid is None or isinstance(guid, UUID):
        return guid
    try:
        return UUID(guid if isinstance(guid, str) else "")
    except ValueError:
        raise BadInput("expected_guid must be the guid of an action (a UUID or its text), as get() shows it") from None


def check_filter(wanted: ActionFilter) -> ActionFilter:
    """The filter with its values as the store compares them."""
    for what in ("handler", "template", "id_prefix"):
        # An empty prefix is the prefix of every id.
        if (name := getattr(wanted, what)) is not None and not (what == "id_prefix" and name == ""):
            check_name(what, name)
    try:
        state = None if wanted.state is None else State(wanted.state)
    except ValueError:
        raise BadInput(f"state is {shown(wanted.state)}, but must be one of {', '.join(State)}") from None
    due_before = None if wanted.due_before is None else check_time("due_before", wanted.due_before)
    return replace(wanted, state=state, due_before=due_before)


def check_exists(exists: str) -> Exists:
    match exists:
        case "replace" | "keep" | "error":
            return exists
    raise BadInput(f'exists is {shown(exists)}, but must be "replace", "keep" or "error"')


def terms_of(call: Call, repeat: Repeat | None, payload_version: int, trace: str | None) -> Terms:
    """What workers must know of the call; nothing is stored for a payload of version 1."""
    own = (call.retry, repeat, call.timeout, call.start_within, trace)
    if payload_version == 1 and own.count(None) == len(own):
        return _NO_TERMS
    return Terms(
        retry=call.retry,
        repeat=repeat,
        timeout=call.timeout,
        start_within=call.start_within,
        payload_version=None if payload_version == 1 else payload_version,
        trace=trace,
    )


def needs_now(call: Call) -> bool:
    """A repetition begins on the database's clock unless the caller said when."""
    return call.repeat is not None and call.at is None


def first_run(call: Call, timing: Timing, now: datetime | None, spread: float) -> tuple[Repeat | None, Timing]:
    """The repetition as it is stored, and when it first runs: at its first tick, and after a part of the jitter."""
    if call.repeat is None:
        return None, timing
    start = timing.at
    if start is None:
        assert now is not None
        start = now + timing.delay
    repeat, tick = begin(call.repeat, start)
    return repeat, Timing(tick, repeat.jitter * spread)


def next_runs_of(action: Action, now: datetime, count: int) -> list[datetime]:
    """The next run of an action as it is stored, then what follows by its rule; nothing once it is finished."""
    if action.status.state is not State.LIVE:
        return []
    runs = [action.status.scheduled_at]
    repeat, expires_at = action.spec.terms.repeat, action.spec.expires_at
    if repeat is not None and (following := next_tick(repeat, runs[0], now)) is not None:
        runs += [following, *upcoming(repeat, following, count)]
    return [run for run in runs[:count] if expires_at is None or run < expires_at]


def id_of(call: Call) -> str | None:
    """The id of the action; without one a named request has its own, so that its twin lands on the same action."""
    if call.id is not None or call.request_id is None:
        return call.id
    return uuid5(_REQUESTS, check_name("request_id", call.request_id)).hex


def request_guid(operation: Request, action_id: str, request_id: str | None) -> UUID | None:
    """The guid under which a request that the caller named is known: for this operation on this action."""
    if request_id is None:
        return None
    # No name holds a control character, so no two requests are written alike.
    return uuid5(_REQUESTS, "\0".join((operation, action_id, check_name("request_id", request_id))))


def batches(calls: Iterable[Call], size: int) -> Iterator[list[Call]]:
    """Cut calls into batches in which no id stands twice, so that the order of calls for an id is kept."""
    batch: list[Call] = []
    ids: set[str] = set()
    if isinstance(calls, Call):
        raise BadInput("calls must be many calls made by call(), not one: schedule_many([call(...)])")
    for call in each("calls", calls, "calls made by call()"):
        if not isinstance(call, Call):
            raise BadInput(f"schedule_many takes calls made by call(), not {type(call).__name__}")
        action_id = id_of(call)
        if action_id is not None:
            check_name("id", action_id)
        if len(batch) >= size or action_id in ids:
            yield batch
            batch, ids = [], set()
        batch.append(call)
        if action_id is not None:
            ids.add(action_id)
    if batch:
        yield batch
