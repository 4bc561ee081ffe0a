"""What is asked about all shards where one statement cannot ask it of several nodes: of one shard after the other, each
counting only what those before it have left; so all of them read no more than one statement would. Or of each state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from matrixsched.rules.action import parked_lane
from matrixsched.rules.retention import FINISHED
from matrixsched.store.fleet import Pace, Parked
from matrixsched.store.postgresql.fleet import PostgresFleet
from matrixsched.store.postgresql.reports import PostgresReports
from matrixsched.store.transition import Conversation, Row, transition
from matrixsched.store.values import Backlog


class DistributedReports(PostgresFleet, PostgresReports):
    @transition
    def backlog(self, *, count_max: int) -> Conversation[Backlog]:
        rows = list[Row]()
        due = looked_at = due_of_new = 0
        (busy,) = yield self._ask("backlog.look")
        for shard in busy["shards"]:
            (row,) = yield self._ask(
                "backlog.count",
                shard_id=shard,
                due_max=count_max - due,
                new_max=count_max - looked_at,
            )
            rows.append(row)
            due += row["due"]
            looked_at += row["looked_at"]
            due_of_new += row["due_of_new"]
        return Backlog(
            now=busy["now"],
            due=min(due + due_of_new, count_max),
            oldest_due_at=_oldest(row["oldest_due_at"] for row in rows),
            oldest_open_at=_oldest(row["oldest_open_at"] for row in rows),
            oldest_parked_at=_oldest(row["oldest_parked_at"] for row in rows),
        )

    @transition
    def parked(self, *, count_max: int) -> Conversation[list[Parked]]:
        waiting, oldest = Counter[str](), dict[str, datetime]()
        for shard in (yield from self._shards()):
            for row in (yield self._ask("parked", shard_id=shard, count_max=count_max)):
                lane, due_at = row["lane"], row["oldest_due_at"]
                waiting[lane] += row["waiting"]
                oldest[lane] = min(due_at, oldest.get(lane, due_at))
        prefix = parked_lane("")
        return [Parked(lane.removeprefix(prefix), waiting[lane], oldest[lane]) for lane in sorted(waiting)]

    @transition
    def pace(self, since: datetime, *, count_max: int) -> Conversation[Pace]:
        rows = {}
        for state in FINISHED:
            (rows[state],) = yield self._ask("pace", state=state, since=since, count_max=count_max)
        return Pace(rows[FINISHED[0]]["now"], {state: row["ended"] for state, row in rows.items()})

    def _waiting(self, lanes_max: int, count_max: int) -> Conversation[tuple[datetime, dict[str, int]]]:
        (listed,) = yield self._ask("gate_report.listed", lanes_max=lanes_max, count_max=count_max)
        left: dict[str, int] = {lane: listed["most"] for lane in listed["lanes"]}
        waiting = Counter[str]()
        for shard in (yield from self._shards()) if left else ():
            rows = yield self._ask("gate_report.lanes", shard_id=shard, lanes=list(left), mosts=list(left.values()))
            for row in rows:
                waiting[row["lane"]] += row["waiting"]
                left[row["lane"]] -= row["waiting"]
            left = {lane: most for lane, most in left.items() if most > 0}
            if not left:
                break
        return listed["now"], {lane: waiting[lane] for lane in listed["lanes"] if waiting[lane]}

    def _shards(self) -> Conversation[range]:
        (installation,) = yield self._ask("installation")
        return range(installation["shard_count"])


def _oldest(instants: Iterable[datetime | None]) -> datetime | None:
    return min((instant for instant in instants if instant is not None), default=None)
