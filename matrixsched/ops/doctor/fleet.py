"""The fleet: whether anybody works, keeps up, tidies, and has the handlers that are asked for."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from matrixsched.ops.doctor.words import listed
from matrixsched.ops.findings import Finding, fault, note, ok, warning
from matrixsched.ops.render import Count, age, as_argument
from matrixsched.rules.explanation import QUIET_AFTER, SILENT_AFTER
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.limits import Limit
from matrixsched.rules.minutes import WorkerSeen
from matrixsched.rules.templates import Template
from matrixsched.store.chores import QUEUES, TIDY
from matrixsched.store.fleet import ChoreReport, Parked
from matrixsched.store.values import Backlog, ShardReport

COUNT_MAX = 10_000
CHORE_MAX = timedelta(hours=1)
"""Workers tidy every half a minute; a round through large tables may take longer, but somebody is at it then."""
_EPOCH_YEAR = 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    shards: Sequence[ShardReport]
    backlog: Backlog
    parked: Sequence[Parked] = ()
    chores: Sequence[ChoreReport] = ()
    quarantined: int = 0
    gates: GateReport = field(default_factory=GateReport)
    templates: Sequence[Template] = ()
    limits: Sequence[Limit] = ()
    known: Collection[str] | None = None
    """The handlers of an App that was named; None: none was."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Live actions for handlers that it does not have, among those that were looked at."""
    workers: Sequence[WorkerSeen] = ()
    """Those that did not leave."""
    is_quota_set: bool = True
    """The row of its settings is there."""

    @property
    def now(self) -> datetime:
        """The database's time."""
        return self.backlog.now

    @property
    def worker_seen_at(self) -> datetime | None:
        """The last sign of life of any worker that runs actions: as `explain` reckons it. Who is there for queues alone
        tidies, too."""
        of_actions = [chore for chore in self.chores if chore.name not in (TIDY, QUEUES)]
        signs = [min(shard.heartbeat_at, self.now) for shard in self.shards]
        signs += [min(chore.held_until, self.now) for chore in of_actions]
        signs += [chore.done_at for chore in of_actions if chore.done_at is not None]
        signs += [worker.seen_at for worker in self.workers if worker.runs_actions]
        latest = max(signs, default=None)
        return None if latest is None or latest.year <= _EPOCH_YEAR else latest

    @property
    def is_anybody_there(self) -> bool:
        """Who runs actions."""
        seen_at = self.worker_seen_at
        return seen_at is not None and self.now - seen_at <= QUIET_AFTER

    @property
    def of_queues_alone(self) -> Sequence[WorkerSeen]:
        return [worker for worker in self.workers if not worker.runs_actions and worker.is_there(self.now)]


def judge_fleet(facts: FleetFacts, patience: timedelta, options: str) -> Iterator[Finding]:
    """`patience` is how long something due may wait before it is told of; `options` reach the same database."""
    yield _workers(facts, patience)
    yield from _silent(facts, options)
    yield from _late(facts, patience, options)
    yield from _handlers(facts, patience)
    yield from _chores(facts)
    yield from _quarantined(facts, options)


def _workers(facts: FleetFacts, patience: timedelta) -> Finding:
    seen_at = facts.worker_seen_at
    who = "worker that runs actions" if facts.of_queues_alone else "worker"
    seen = f"no {who} was ever here" if seen_at is None else f"last sign of a {who} {age(facts.now - seen_at)} ago"
    if facts.is_anybody_there:
        return ok("workers", seen)
    start = "`matrixsched worker MODULE:APP`"
    oldest = facts.backlog.oldest_due_at
    if oldest is None or facts.now - oldest < patience:
        return note("workers", f"{seen}; nothing has been due for {age(patience)}", f"when there is work: {start}")
    due = Count(facts.backlog.due, COUNT_MAX)
    return fault("workers", f"{seen}, but there is work ({due}), due for up to {age(facts.now - oldest)}", start)


def _silent(facts: FleetFacts, options: str) -> Iterator[Finding]:
    silent = [shard for shard in facts.shards if shard.locked and shard.heartbeat_age > SILENT_AFTER]
    if not silent:
        return
    longest = max(silent, key=lambda shard: shard.heartbeat_age)
    yield warning(
        "shards",
        f"{len(silent)} of {len(facts.shards)} shards are held by somebody who is silent, shard {longest.shard} by "
        f"{longest.locked_by} for {age(longest.heartbeat_age)}: it was killed, or cannot reach the database",
        f"a worker takes them over by itself; to free one: `matrixsched shards release {longest.shard}{options}`",
    )


def _late(facts: FleetFacts, patience: timedelta, options: str) -> Iterator[Finding]:
    """What is due and has no gate to pass, so that nothing but a worker can be what it waits for: in the shards, and
    what is new and nobody has looked at yet."""
    late = [(shard, shard.oldest_due_at) for shard in facts.shards if shard.oldest_due_at is not None]
    late = [(shard, due_at) for shard, due_at in late if facts.now - due_at >= patience]
    oldest = min([due_at for _, due_at in late], default=facts.now)
    oldest = min(oldest, facts.backlog.oldest_open_at or facts.now)
    if facts.now - oldest < patience:
        yield ok("shards", f"{len(facts.shards)} shards, none with work that is late by {age(patience)}")
        return
    free = [shard.shard for shard, _ in late if not shard.locked]
    where = f"{len(late)} of {len(facts.shards)} shards have work" if late else "there is work, not looked at yet,"
    holders = f"; {len(free)} of these have no holder ({listed(free) or '-'})" if late else ""
    yield (warning if facts.is_anybody_there else fault)(
        "shards",
        f"{where} that is due and passes no gate, for up to {age(facts.now - oldest)}{holders}",
        "start more workers, or raise their --concurrency; why a single action waits: `matrixsched explain ID"
        + options
        + "`",
    )


def _handlers(facts: FleetFacts, patience: timedelta) -> Iterator[Finding]:
    parked = {one.handler: one for one in facts.parked if facts.now - one.oldest_due_at >= patience}
    for name, one in parked.items():
        waits = f"{one.count:,} rows wait for the handler {name!r}, which no worker that met them has, for up to "
        detail = f"{waits}{age(facts.now - one.oldest_due_at)}"
        if facts.known is not None and name in facts.known:
            yield warning("handlers", f"{detail}; this App has it", "start a worker of this App")
        else:
            nor = "" if facts.known is None else ", nor has this App"
            yield fault(
                "handlers", f"{detail}{nor}", f"register it with @app.action({json.dumps(name)}), and start its workers"
            )
    for name, count in facts.unknown.items():
        if name not in parked:
            yield note(
                "handlers",
                f"{count:,} live actions are for the handler {name!r}, which this App does not have",
                "see that workers of another App have it",
            )
    if not parked and not facts.unknown:
        yield ok("handlers", "nothing waits for a handler that no worker has")


def _chores(facts: FleetFacts) -> Iterator[Finding]:
    tidy = next((chore for chore in facts.chores if chore.name == TIDY), None)
    if tidy is None or not (facts.is_anybody_there or facts.of_queues_alone):
        return
    done = "never" if tidy.done_at is None else f"last {age(facts.now - tidy.done_at)} ago"
    is_at_it = tidy.is_held and tidy.held_until > facts.now
    if is_at_it or (tidy.done_at is not None and facts.now - tidy.done_at <= CHORE_MAX):
        yield ok("tidying", "somebody is at it" if is_at_it else f"done {done}")
        return
    yield warning(
        "tidying",
        f"workers are there, but what is old and dead was cleared away {done}: the tables grow",
        "see in the log of the workers what keeps them from it, and that tidy_every is short",
    )


def _quarantined(facts: FleetFacts, options: str) -> Iterator[Finding]:
    if facts.quarantined:
        yield warning(
            "quarantine",
            f"{Count(facts.quarantined, COUNT_MAX)} actions are quarantined: their payload could not be read, or they "
            "took their worker down again and again",
            f"`matrixsched actions list --state quarantined{options}`; once mended, `matrixsched actions redrive "
            f"--state quarantined{options} --yes`",
        )


# Gates.


def judge_gates(facts: FleetFacts, options: str) -> Iterator[Finding]:
    """What somebody closed, and may have forgotten."""
    findings = [
        *(_paused(facts, template, options) for template in facts.templates if template.is_paused(facts.now)),
        *(_slowed(facts, limit, options) for limit in facts.limits if limit.is_slowed(facts.now)),
    ]
    if not facts.is_quota_set:
        yield fault(
            "quota",
            "its settings are missing: somebody has deleted their row, so that no window is planned",
            f"`matrixsched fsck --repair{options}`, then `matrixsched quota set{options}` for what was not usual",
        )
    held = sum(facts.gates.held.values())
    yield from findings or [ok("gates", f"nothing is paused or slowed down; {held:,} rows wait before gates")]


FORGOTTEN_AFTER = timedelta(days=1)


def _paused(facts: FleetFacts, template: Template, options: str) -> Finding:
    assert template.paused_at is not None
    since = facts.now - template.paused_at
    held = sum(count for (_, name), count in facts.gates.held.items() if name == template.name)
    until = "until somebody resumes it" if template.paused_until is None else f"until {template.paused_until:%F %T} UTC"
    told = warning if since >= FORGOTTEN_AFTER and template.paused_until is None and held else note
    return told(
        "gates",
        f"the template {template.name!r} has been paused for {age(since)}, {until}; {held:,} of its rows are due",
        f"`matrixsched templates resume{options} {as_argument(template.name)}`",
    )


def _slowed(facts: FleetFacts, limit: Limit, options: str) -> Finding:
    assert limit.slow_until is not None
    to = "nothing" if limit.slow_rate is None else str(limit.slow_rate)
    return note(
        "gates",
        f"the limit {limit.name!r} is slowed down to {to} for another {age(limit.slow_until - facts.now)}",
        f"`matrixsched limits resume{options} {as_argument(limit.name)}`",
    )
