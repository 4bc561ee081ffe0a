"""One look at the work of the fleet: a handful of questions that cost little, whatever is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from matrixsched.app import App
from matrixsched.ops.limits import Standing
from matrixsched.ops.queues import Names, storage_of
from matrixsched.ops.render import Count, Facts
from matrixsched.rules.action import State
from matrixsched.rules.explanation import QUIET_AFTER
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.queues import QueueStat
from matrixsched.store.fleet import Pace
from matrixsched.store.values import Backlog, ShardReport

COUNT_MAX = 10_000
LANES_MAX = 1000
LIMITS_MAX = 100
OPEN = "open"
"""What passes its gate as soon as a worker takes it."""

Sections = dict[str, Facts | Sequence[Facts]]
Tables = dict[str, Sequence[Facts]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    installation: str
    database: str
    backlog: Backlog
    shards: Sequence[ShardReport]
    gates: GateReport
    limits: Sequence[Standing]
    queues: Sequence[QueueStat]
    names: Names
    pace: Pace
    since: datetime
    """From when on the pace is counted."""

    @property
    def now(self) -> datetime:
        """The database's time."""
        return self.backlog.now

    @property
    def late(self) -> timedelta | None:
        """How long the oldest row that is due has been so, whatever it waits for."""
        oldest = self.backlog.oldest_due_at
        return None if oldest is None else self.now - oldest

    def per_second(self, *states: State) -> float:
        passed_s = max((self.pace.now - self.since).total_seconds(), 0.001)
        ended = sum(count for state, count in self.pace.ended.items() if not states or state in states)
        return ended / passed_s

    @property
    def is_counted_out(self) -> bool:
        """More may have ended than was counted."""
        return any(count >= COUNT_MAX for count in self.pace.ended.values())

    def sections(self) -> Sections:
        """All of it, as facts and tables."""
        return {"installation": self.facts(), **self.tables()}

    def facts(self) -> Facts:
        return {
            "installation": self.installation,
            "database": self.database,
            "at": self.now,
            "due": Count(self.backlog.due, COUNT_MAX),
            "late_s": self.late,
            "ended_per_s": round(self.per_second(), 1),
            "failed_per_s": round(self.per_second(State.FAILED, State.QUARANTINED), 1),
            "shards": len(self.shards),
            "held": sum(shard.locked for shard in self.shards),
            "with_incoming": sum(shard.incoming > 0 for shard in self.shards),
            "workers": len(self._workers()),
        }

    def tables(self) -> Tables:
        return {
            "workers": self._workers(),
            "gates": self._gates(),
            "limits": [self._limit(standing) for standing in self.limits],
            "queues": [self._queue(stat) for stat in self.queues],
        }

    def _workers(self) -> list[Facts]:
        """Who had a shard lately, the busiest first: each is held for milliseconds only."""
        lately = [shard for shard in self.shards if shard.locked_by is not None and shard.heartbeat_age <= QUIET_AFTER]
        by_name: dict[str, list[ShardReport]] = {}
        for shard in lately:
            by_name.setdefault(shard.locked_by or "", []).append(shard)
        rows: list[Facts] = [
            {
                "worker": name,
                "last_had": len(shards),
                "holds": sum(shard.locked for shard in shards),
                "seen_age_s": min(shard.heartbeat_age for shard in shards),
            }
            for name, shards in sorted(by_name.items(), key=lambda item: (-len(item[1]), item[0]))
        ]
        return rows

    def _gates(self) -> list[Facts]:
        held = sorted(self.gates.held.items(), key=lambda item: -item[1])
        return [
            {"gate": OPEN if gate is None else gate.value, "template": template, "rows": Count(count, COUNT_MAX)}
            for (gate, template), count in held
        ]

    def _limit(self, standing: Standing) -> Facts:
        row = standing.row
        return {"limit": row["limit"], "rate": row["rate"], "left": row["left"], "slowed_to": row["slowed_to"]}

    def _queue(self, stat: QueueStat) -> Facts:
        oldest = stat.oldest_ready_at
        return {
            "queue": self.names.of(stat.queue).argument,
            "ready": Count(stat.ready, COUNT_MAX),
            "taken": Count(stat.taken, COUNT_MAX),
            "delayed": Count(stat.delayed, COUNT_MAX),
            "dead": Count(stat.dead, COUNT_MAX),
            "oldest_ready_age_s": None if oldest is None else self.now - oldest,
        }


async def look(app: App, *, before: Look | None, every: timedelta) -> Look:
    """Look once; the pace is counted since the look before, or since as long as is between two looks."""
    run, do = app.store.run, app.store.transitions
    backlog = await run(do.backlog(count_max=COUNT_MAX))
    since = backlog.now - every if before is None else before.pace.now
    queues = await storage_of(app).stat(count_max=COUNT_MAX)
    return Look(
        installation=app.installation,
        database=app.store.description,
        backlog=backlog,
        pace=await run(do.pace(since, count_max=COUNT_MAX)),
        since=since,
        shards=await app.shards(count_max=1),
        gates=await run(do.gate_report(lanes_max=LANES_MAX, count_max=COUNT_MAX)),
        limits=[Standing(limit, backlog.now) for limit in await app.limits.list(limit=LIMITS_MAX)],
        queues=[queues[number] for number in sorted(queues)],
        names=Names(app.queues.handlers.declared, await storage_of(app).settings() if queues else ()),
    )
