"""What the doctor makes of how the fleet fares."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from support.findings import bad, only

from matrixsched.ops.doctor.fleet import FleetFacts, judge_fleet, judge_gates
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.gates import Gate
from matrixsched.rules.limits import Limit
from matrixsched.rules.minutes import WorkerSeen
from matrixsched.rules.templates import Template
from matrixsched.store.fleet import ChoreReport, Parked
from matrixsched.store.values import Backlog, ShardReport

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))


def a_shard(number: int = 0, **changes: Any) -> ShardReport:
    known: dict[str, Any] = {"locked": False, "locked_by": "worker-a", "heartbeat_at": NOW, "oldest_due_at": None}
    given = known | changes
    return ShardReport(
        shard=number,
        lock_guid=UUID(int=number),
        locked_at=given["heartbeat_at"],
        heartbeat_age=NOW - given["heartbeat_at"],
        incoming=0,
        processing=0,
        **given,
    )


def a_fleet(*shards: ShardReport, due: int = 0, oldest: datetime | None = None, **changes: Any) -> FleetFacts:
    tidy = ChoreReport("tidy", False, EPOCH, NOW - MINUTE)
    facts = FleetFacts(
        shards=shards or [a_shard()], backlog=Backlog(now=NOW, due=due, oldest_due_at=oldest), chores=[tidy]
    )
    return replace(facts, **changes)


def a_chore(done_at: datetime | None, held_until: datetime = EPOCH) -> list[ChoreReport]:
    return [ChoreReport("tidy", held_until > EPOCH, held_until, done_at)]


def a_worker(*handlers: str) -> WorkerSeen:
    return WorkerSeen(name="w", started_at=NOW - DAY, seen_at=NOW - SECOND, slots=9, running=0, handlers=handlers)


LONG_AGO = NOW - HOUR
DESERTED = {"chores": a_chore(None)}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (a_fleet(), []),
        (a_fleet(a_shard(heartbeat_at=LONG_AGO), **DESERTED), [("note", "workers")]),
        (a_fleet(a_shard(heartbeat_at=EPOCH), due=1, oldest=NOW - SECOND, **DESERTED), [("note", "workers")]),
        (a_fleet(a_shard(heartbeat_at=EPOCH), due=1, oldest=LONG_AGO, **DESERTED), [("fault", "workers")]),
        (a_fleet(a_shard(heartbeat_at=LONG_AGO, locked=True), a_shard(1)), [("warning", "shards")]),
        (a_fleet(a_shard(oldest_due_at=NOW - 59 * SECOND)), []),
        (a_fleet(a_shard(oldest_due_at=LONG_AGO)), [("warning", "shards")]),
        (
            a_fleet(a_shard(heartbeat_at=EPOCH, oldest_due_at=LONG_AGO), due=1, oldest=LONG_AGO, **DESERTED),
            [("fault", "workers"), ("fault", "shards")],
        ),
        # New ones, into which nobody has looked, are late as well.
        (
            a_fleet(backlog=Backlog(now=NOW, due=1, oldest_due_at=LONG_AGO, oldest_open_at=LONG_AGO)),
            [("warning", "shards")],
        ),
        (a_fleet(backlog=Backlog(now=NOW, due=1, oldest_due_at=LONG_AGO, oldest_open_at=NOW - 59 * SECOND)), []),
        # A worker of queues alone tidies and reports, and runs no action.
        (a_fleet(a_shard(heartbeat_at=LONG_AGO), workers=[a_worker()]), [("note", "workers")]),
        (
            a_fleet(
                a_shard(heartbeat_at=LONG_AGO),
                workers=[a_worker()],
                backlog=Backlog(now=NOW, due=1, oldest_due_at=LONG_AGO, oldest_open_at=LONG_AGO),
            ),
            [("fault", "workers"), ("fault", "shards")],
        ),
        (a_fleet(a_shard(heartbeat_at=LONG_AGO), workers=[a_worker("send")]), []),
        (
            a_fleet(a_shard(heartbeat_at=LONG_AGO), workers=[a_worker()], chores=a_chore(NOW - 2 * HOUR)),
            [("note", "workers"), ("warning", "tidying")],
        ),
        (a_fleet(chores=a_chore(NOW - 2 * HOUR)), [("warning", "tidying")]),
        (a_fleet(chores=a_chore(None)), [("warning", "tidying")]),
        (a_fleet(chores=a_chore(NOW - 2 * HOUR, held_until=NOW + SECOND)), []),
        (a_fleet(chores=a_chore(NOW - 2 * HOUR, held_until=NOW - HOUR)), [("warning", "tidying")]),
        (a_fleet(quarantined=3), [("warning", "quarantine")]),
        (a_fleet(parked=[Parked("mail", 3, NOW - SECOND)]), []),
        (a_fleet(parked=[Parked("mail", 3, LONG_AGO)]), [("fault", "handlers")]),
        (a_fleet(parked=[Parked("mail", 3, LONG_AGO)], known={"mail"}), [("warning", "handlers")]),
        (a_fleet(parked=[Parked("mail", 3, LONG_AGO)], known={"x"}, unknown={"mail": 1}), [("fault", "handlers")]),
        (a_fleet(known={"x"}, unknown={"mail": 1}), [("note", "handlers")]),
    ],
)
def test_how_the_fleet_fares_is_told(facts: FleetFacts, expected: list[tuple[str, str]]) -> None:
    assert bad(judge_fleet(facts, MINUTE, "")) == expected


def a_template(**changes: Any) -> Template:
    return replace(Template(name="promo"), **changes)


@pytest.mark.parametrize(
    ("template", "held", "verdict"),
    [
        (a_template(), 9, None),
        (a_template(paused_at=NOW - HOUR), 9, "note"),
        (a_template(paused_at=NOW - DAY), 9, "warning"),
        (a_template(paused_at=NOW - DAY), 0, "note"),
        (a_template(paused_at=NOW - DAY, paused_until=NOW + HOUR), 9, "note"),
        (a_template(paused_at=NOW - DAY, paused_until=NOW - HOUR), 9, None),
    ],
)
def test_a_template_that_somebody_may_have_forgotten_is_told(
    template: Template, held: int, verdict: str | None
) -> None:
    facts = a_fleet(templates=[template], gates=GateReport(held={(Gate.PAUSED, "promo"): held} if held else {}))
    found = [finding for finding in judge_gates(facts, " --installation x") if not finding.is_ok]
    assert [finding.verdict.value for finding in found] == ([] if verdict is None else [verdict])
    if found:
        assert found[0].remedy == "`matrixsched templates resume --installation x promo`"


def test_a_limit_that_was_told_to_slow_down_is_told() -> None:
    limit = Limit(name="global", updated_at=NOW, slow_until=NOW + HOUR)
    finding = only(judge_gates(a_fleet(limits=[limit, replace(limit, slow_until=NOW)]), ""))
    assert "'global' is slowed down to nothing for another 1 h 0 min" in finding.detail
    assert finding.remedy == "`matrixsched limits resume global`"


def test_a_name_is_quoted_where_it_is_to_be_typed() -> None:
    """Whoever names templates and limits does not thereby type at an operator's prompt."""
    template = a_template(name="news; touch x", paused_at=NOW - HOUR)
    limit = Limit(name="handler:a b", updated_at=NOW, slow_until=NOW + HOUR)
    found = [one for one in judge_gates(a_fleet(templates=[template], limits=[limit]), " --database x.db")]
    assert [finding.remedy for finding in found] == [
        "`matrixsched templates resume --database x.db 'news; touch x'`",
        "`matrixsched limits resume --database x.db 'handler:a b'`",
    ]
    finding = only(judge_fleet(a_fleet(parked=[Parked('a"b', 1, LONG_AGO)]), MINUTE, ""))
    assert r'@app.action("a\"b")' in (finding.remedy or "")


def test_a_quota_without_settings_is_told() -> None:
    finding = only(judge_gates(a_fleet(is_quota_set=False), " --database x.db"))
    assert (finding.verdict.value, finding.check) == ("fault", "quota")
    assert "`matrixsched fsck --repair --database x.db`" in (finding.remedy or "")
