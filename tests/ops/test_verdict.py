"""One sentence says whether all is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from matrixsched.ops.fleet import Overview, WorkerAtWork
from matrixsched.ops.render import Count
from matrixsched.ops.verdict import Level, judge
from matrixsched.rules.action import Outcome
from matrixsched.rules.gate_report import GateReport, HeldBy
from matrixsched.rules.gates import Gate
from matrixsched.rules.minutes import FleetMinute
from matrixsched.store.fleet import Parked

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def seen(
    *,
    due: int = 0,
    oldest_s: float = 0,
    open_s: float | None = None,
    parked: Mapping[str, float] | None = None,
    handlers: tuple[str, ...] = ("send",),
    workers: int = 3,
    attempts: int = 0,
    wrong: int = 0,
    held: Mapping[HeldBy, int] | None = None,
    slowed: tuple[str, ...] = (),
) -> Overview:
    """Where nothing is held, all that is due is open."""
    open_s = oldest_s if open_s is None and due and not held else open_s
    outcomes = Counter({Outcome.SUCCEEDED: attempts - wrong, Outcome.FAILED: wrong})
    return Overview(
        now=NOW,
        shard_count=4,
        due=Count(due, 10_000),
        oldest_due_at=ago(oldest_s) if due else None,
        oldest_open_at=None if open_s is None else ago(open_s),
        oldest_parked_at=ago(max(parked.values())) if parked else None,
        parked=[Parked(handler, 1, ago(waited_s)) for handler, waited_s in (parked or {}).items()],
        minutes=[FleetMinute(NOW - timedelta(minutes=back)) for back in range(59, 0, -1)]
        + [FleetMinute(NOW, outcomes)],
        workers=[
            WorkerAtWork(
                name=f"w{number}",
                started_at=NOW,
                seen_at=NOW,
                slots=10,
                running=0,
                handlers=handlers,
                attempts=0,
                went_wrong=0,
            )
            for number in range(workers)
        ],
        gates=GateReport(held=held or {}, slowed=frozenset(slowed)),
    )


@pytest.mark.parametrize(
    ("overview", "level", "text", "places"),
    [
        (seen(), Level.OK, "All is well: nothing is late, 3 workers.", []),
        (seen(workers=1, due=5, oldest_s=1), Level.OK, "All is well: nothing is late, 1 worker.", []),
        (seen(workers=0), Level.ATTENTION, "Look at this: no worker has reported lately.", ["shards"]),
        (
            seen(workers=0, due=12, oldest_s=5),
            Level.TROUBLE,
            "Trouble: no worker has reported, and 12 are due.",
            ["shards"],
        ),
        (
            seen(workers=0, due=10_000, oldest_s=240),
            Level.TROUBLE,
            "Trouble: no worker has reported, and 10,000+ are due; "
            "the oldest that no gate holds has waited for 4 min 0 s.",
            ["shards"],
        ),
        # Workers of queues alone run none.
        (seen(workers=1, handlers=()), Level.OK, "All is well: nothing is late, 1 worker.", []),
        (
            seen(workers=1, handlers=(), due=12, oldest_s=5),
            Level.TROUBLE,
            "Trouble: no worker that runs actions has reported, only of queues, and 12 are due.",
            ["shards"],
        ),
        (seen(due=1, oldest_s=10), Level.OK, "All is well: nothing is late, 3 workers.", []),
        (
            seen(due=1, oldest_s=11),
            Level.ATTENTION,
            "Look at this: the oldest that no gate holds has waited for 11 s.",
            ["shards"],
        ),
        (
            seen(due=1, oldest_s=61),
            Level.TROUBLE,
            "Trouble: the oldest that no gate holds has waited for 1 min 1 s.",
            ["shards"],
        ),
        # A gate holds all of it: it is late on purpose.
        (
            seen(due=9, oldest_s=7200, held={(Gate.QUOTA, "t"): 9}),
            Level.OK,
            "All is well: nothing is late, 3 workers.",
            [],
        ),
        (
            seen(due=9, oldest_s=7200, open_s=5, held={(Gate.QUOTA, "t"): 4}),
            Level.OK,
            "All is well: nothing is late, 3 workers.",
            [],
        ),
        (
            seen(due=9, oldest_s=7200, open_s=11, held={(Gate.QUOTA, "t"): 4}),
            Level.ATTENTION,
            "Look at this: the oldest that no gate holds has waited for 11 s.",
            ["shards"],
        ),
        # Both are counted up to a bound: how many are due, and how many of them are held, tells nothing.
        (
            seen(workers=1, due=10_000, oldest_s=6 * 3600, open_s=6 * 3600, held={(Gate.QUOTA, "promo"): 12_000}),
            Level.TROUBLE,
            "Trouble: the oldest that no gate holds has waited for 6 h 0 min.",
            ["shards"],
        ),
        (
            seen(workers=1, due=10_000, oldest_s=6 * 3600, held={(Gate.QUOTA, "promo"): 12_000}),
            Level.OK,
            "All is well: nothing is late, 1 worker.",
            [],
        ),
        (seen(due=2, open_s=1, parked={"mail": 10}), Level.OK, "All is well: nothing is late, 3 workers.", []),
        (
            seen(due=2, open_s=1, parked={"mail": 11}),
            Level.ATTENTION,
            "Look at this: no worker has the handler of what has waited for 11 s: mail.",
            ["shards"],
        ),
        (
            seen(due=9, open_s=1, parked={"a": 5, "b": 61, "c": 3600}),
            Level.TROUBLE,
            "Trouble: no worker has the handler of what has waited for 1 h 0 min: b, c.",
            ["shards"],
        ),
        # Somebody put it aside, but somebody else has the handler: it waits for room as anything else.
        (
            seen(due=9, open_s=1, parked={"mail": 3600}, handlers=("mail",)),
            Level.TROUBLE,
            "Trouble: the oldest that no gate holds has waited for 1 h 0 min.",
            ["shards"],
        ),
        (seen(attempts=19, wrong=19), Level.OK, "All is well: nothing is late, 3 workers.", []),
        (seen(attempts=1000, wrong=49), Level.OK, "All is well: nothing is late, 3 workers.", []),
        (
            seen(attempts=1000, wrong=50),
            Level.ATTENTION,
            "Look at this: 5% of the attempts of the last 5 minutes went wrong.",
            ["actions"],
        ),
        (
            seen(attempts=20, wrong=10),
            Level.TROUBLE,
            "Trouble: 50% of the attempts of the last 5 minutes went wrong.",
            ["actions"],
        ),
        (
            seen(due=3, held={(Gate.NO_TEMPLATE, "gone"): 3}),
            Level.ATTENTION,
            "Look at this: 3 wait for a template that is not there.",
            ["templates"],
        ),
        (
            seen(due=3, held={(Gate.PAUSED, "b"): 2, (Gate.PAUSED, "a"): 1}),
            Level.ATTENTION,
            "Look at this: paused while messages are due: a, b.",
            ["templates"],
        ),
        (
            seen(slowed=("a", "b", "c", "d", "e")),
            Level.ATTENTION,
            "Look at this: told to slow down: a, b, c and 2 more.",
            ["limits"],
        ),
    ],
)
def test_the_verdict(overview: Overview, level: Level, text: str, places: list[str]) -> None:
    verdict = judge(overview)
    assert (verdict.level, verdict.text, verdict.places) == (level, text, places)
    assert verdict.others == []


def test_what_is_less_bad_is_told_after_the_sentence() -> None:
    verdict = judge(seen(due=1, oldest_s=61, slowed=("global",)))
    assert (verdict.level, verdict.places) == (Level.TROUBLE, ["shards", "limits"])
    assert "global" not in verdict.text
    assert [finding.text for finding in verdict.others] == ["told to slow down: global"]
