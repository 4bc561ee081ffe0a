"""What the commands about actions show."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from matrixsched.app import App
from matrixsched.handlers import Handler
from matrixsched.ops.bulk import FINISHED_BADLY
from matrixsched.ops.render import Facts, Id, age, as_argument
from matrixsched.ops.repetition import exclusion_text, misfire_text
from matrixsched.payloads import encode_unregistered
from matrixsched.rules.action import UNGATED, Action, Outcome, PastAttempt, State, parked_lane, suspect_lane
from matrixsched.rules.durations import duration_text
from matrixsched.rules.lanes import is_gated
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import Cron, Every, Repeat
from matrixsched.store.values import WaitingRow

Sections = Mapping[str, Facts | Sequence[Facts]]


def row(action: Action, *, with_payload: bool = False) -> Facts:
    """An action in a list."""
    status = action.status
    facts: dict[str, object] = {
        "id": action.id,
        "handler": action.spec.handler,
        "state": status.state.value,
        "running": status.running,
        "scheduled_at": status.scheduled_at,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "interrupted": status.interrupted,
        "last_outcome": _value(status.last_outcome),
    }
    return facts | ({"payload": payload_text(action)} if with_payload else {})


def payload_text(action: Action) -> str:
    return action.spec.payload.decode("utf-8", "replace")


def payload_for(handler: Handler[..., Any], plain: object) -> object:
    """JSON values as a handler's payload, of the type that it takes; InvalidPayload if they are none."""
    if not handler.takes_payload:
        return plain
    return handler.decode(encode_unregistered(handler.name, plain), handler.version)


def _value(outcome: Outcome | None) -> str | None:
    return None if outcome is None else outcome.value


async def shown(app: App, action_id: str, *, runs: int, with_payload: bool) -> Sections:
    """All there is to know about an action."""
    async with app:
        action, do = await app.get(action_id), app.store.transitions
        row = await app.store.run(do.waiting_row(action.meta.shard, action.id, action.meta.guid))
        return {
            "meta": _meta(action),
            "spec": _spec(action, with_payload=with_payload),
            "status": _status(action, row, await app.store.run(do.now())),
            "next_runs": run_rows(await app.next_runs(action_id, runs) if runs else [], action.spec.terms.repeat),
            "history": _history(action, await app.history(action_id)),
        }


async def next_runs(app: App, action_id: str, count: int) -> list[Facts]:
    async with app:
        action = await app.get(action_id)
        return run_rows(await app.next_runs(action_id, count), action.spec.terms.repeat)


def run_rows(runs: Sequence[datetime], repeat: Repeat | None) -> list[Facts]:
    """Runs to come, in UTC and as the clocks show them that the rule goes by."""
    zone = ZoneInfo("UTC" if repeat is None else repeat.zone)
    return [{"run": number, "at": at, "local": at.astimezone(zone)} for number, at in enumerate(runs, start=1)]


def _meta(action: Action) -> Facts:
    meta = action.meta
    return {
        "id": meta.id,
        "guid": str(meta.guid),
        "version": str(meta.version),
        "revision": meta.revision,
        "shard": Id(meta.shard),
        "created_at": meta.created_at,
        "updated_at": meta.updated_at,
    }


def _spec(action: Action, *, with_payload: bool) -> Facts:
    spec, terms = action.spec, action.spec.terms
    facts: dict[str, object] = {
        "handler": spec.handler,
        "payload_bytes": len(spec.payload),
        "payload_version": Id(terms.payload_version or 1),
        "priority": spec.priority,
        "template": spec.template,
        "zone": spec.zone,
        "limit": spec.limit,
        "repeat": None if terms.repeat is None else _repeat(terms.repeat),
        "retry": "as the handler says" if terms.retry is None else _retry(terms.retry),
        "timeout_s": terms.timeout,
        "start_within_s": terms.start_within,
        "expires_at": spec.expires_at,
        "trace": terms.trace,
        "unreadable": terms.unreadable,
    }
    return facts | ({"payload": payload_text(action)} if with_payload else {})


def _retry(retry: Retry) -> str:
    return "without end" if retry.max_attempts is None else f"up to {retry.max_attempts} attempts"


def _repeat(repeat: Repeat) -> str:
    """The rule as it would be typed."""
    match repeat:
        case Cron():
            rule = f"--cron {shlex.quote(repeat.expression)} --zone {repeat.zone} --skipped {repeat.skipped}"
            rule += f" --repeated {repeat.repeated}"
        case Every():
            rule = f"--every {duration_text(repeat.interval)}" + (" after the end of a run" if repeat.after_end else "")
    jitter = f" --jitter {duration_text(repeat.jitter)}" if repeat.jitter else ""
    exclude = "".join(f" --exclude {exclusion_text(one)}" for one in repeat.exclude)
    return f"{rule} --misfire {misfire_text(repeat.misfire)}{jitter}{exclude}"


def _status(action: Action, row: WaitingRow | None, now: datetime) -> Facts:
    status = action.status
    return {
        "state": status.state.value,
        "standing": _standing(action, row, now),
        "queue": _queue(row),
        "lane": None if row is None or row.lane == UNGATED else row.lane,
        "running": status.running,
        "scheduled_at": status.scheduled_at,
        "tick": status.tick,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "interrupted": status.interrupted,
        "missed": status.missed,
        "deferred": status.deferred,
        "consecutive_failures": status.consecutive_failures,
        "last_outcome": _value(status.last_outcome),
        "last_error": status.last_error,
        "last_started_at": status.last_started_at,
        "last_ended_at": status.last_ended_at,
        "finished_at": status.finished_at,
    }


def _queue(row: WaitingRow | None) -> str | None:
    if row is None or row.is_lost:
        return None
    return "incoming" if row.lane is None else "processing"


def _standing(action: Action, row: WaitingRow | None, now: datetime) -> str:
    """What it waits for, as far as its own rows tell."""
    status = action.status
    if status.state is not State.LIVE:
        return f"finished {age(now - status.finished_at)} ago" if status.finished_at else "finished"
    if row is None:
        return "was changed, or has ended, while it was looked at: look again"
    if row.is_lost:
        return f"{_LOST} in the queues, so that it would never run"
    if status.running:
        return "an attempt is under way"
    if status.scheduled_at > now:
        what = "the next try" if status.consecutive_failures else "its time"
        return f"waits for {what}, in {age(status.scheduled_at - now)}"
    return f"{_DUE} for {age(now - status.scheduled_at)}: {_obstacle(action, row)}"


_DUE, _LOST = "has been due", "has no row that stands for it"


def _obstacle(action: Action, row: WaitingRow) -> str:
    """What keeps an action from running that is due."""
    handler = action.spec.handler
    if row.lane is None:
        return f"no worker has looked into shard {action.meta.shard} since; if that stays so, none is running"
    if row.lane == parked_lane(handler):
        return f"the worker that met it has no handler {handler!r}, so it waits for one that has"
    if row.lane == suspect_lane(handler):
        return "it was interrupted repeatedly, so a worker runs it only when it runs no other such action"
    if is_gated(row.lane):
        return "it waits before a gate: `matrixsched explain` says for what"
    return f"waits for a worker that is free and has the handler {handler!r}"


def _history(action: Action, past: Sequence[PastAttempt]) -> list[Facts]:
    """Attempts that went wrong, newest first, and before them the last one if it went well."""
    status = action.status
    rows = [_attempt(one.outcome, one.attempt, one.tick, one.started_at, one.ended_at, one.error) for one in past]
    if status.last_outcome is Outcome.SUCCEEDED:
        last = _attempt(status.last_outcome, None, None, status.last_started_at, status.last_ended_at, None)
        return [last, *rows]
    return rows


def _attempt(
    outcome: Outcome,
    attempt: int | None,
    tick: int | None,
    started_at: datetime | None,
    ended_at: datetime | None,
    error: str | None,
) -> Facts:
    return {
        "outcome": outcome.value,
        "attempt": attempt,
        "tick": tick,
        "started_at": started_at,
        "ended_at": ended_at,
        "error": error,
    }


def _revival(sections: Sections) -> str:
    """The beginning of the command that runs a finished action again."""
    spec, status = sections["spec"], sections["status"]
    assert isinstance(spec, Mapping)
    assert isinstance(status, Mapping)
    endless = "" if spec["expires_at"] is None else ", without an end"
    if status["state"] in [state.value for state in FINISHED_BADLY]:
        return f"To run it again{endless}: `matrixsched actions redrive"
    return f"To run it once more{endless}: `matrixsched actions run-now"


def next_move(sections: Sections, options: str) -> str:
    """What somebody who has read all this may want to do."""
    meta, status = sections["meta"], sections["status"]
    assert isinstance(meta, Mapping)
    assert isinstance(status, Mapping)
    quoted = as_argument(str(meta["id"]))
    if status["state"] != State.LIVE.value:
        return f"it is finished ({status['state']}). {_revival(sections)}{options} {quoted}`."
    if str(status["standing"]).startswith(_LOST):
        return f"it {status['standing']}. To put it back: `matrixsched fsck --repair{options}`."
    if status["running"]:
        return "an attempt is under way. If it does not end, its time limit ends it; see the worker's log."
    if str(status["standing"]).startswith(_DUE):
        return (
            f"it {status['standing']}. Why, in full: `matrixsched explain{options} {quoted}`; what workers do: "
            f"`matrixsched shards list{options}`; to start one: `matrixsched worker MODULE:APP`."
        )
    return f"it {status['standing']}. To run it now: `matrixsched actions run-now{options} {quoted}`."
