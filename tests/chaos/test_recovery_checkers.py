"""What counts as recovered in time, what is excused, and that what is always excused is not passed over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.facts import ActionRow, Facts
from chaos.made_up import SHARD, altered, called, claimed, locked, ran, spot, taken_over_run
from chaos.nemeses import Fault
from chaos.recovery_checkers import MANY, missed_ticks, progress_times, recovery_times, slow_progress, slow_recovery
from chaos.setting import SHARDS


def recovered(facts: Facts) -> tuple[int, int]:
    times = recovery_times(facts)
    return len(times.measured), times.excused


def begun_again_at(moment: float) -> Facts:
    """It was killed at 10.2."""
    facts = taken_over_run()
    facts.runs[1] = replace(facts.runs[1], begun=moment, ended=moment + 0.1)
    altered(facts, "lock", -1, at=moment - 0.1)
    altered(facts, "row", 1, at=moment - 0.05)
    altered(facts, "row", 2, at=moment + 0.2)
    return facts


def test_recovery_does_not_count_where_another_fault_came_between():
    assert recovery_times(taken_over_run()).measured == [pytest.approx(1.9)]
    for fault in (
        Fault("restart", None, 11.0, 11.5),
        Fault("stop", "w2", 12.06, 12.09),
        Fault("stop", "w3", 10.5, 11.5),  # too few were left
    ):
        facts = taken_over_run()
        facts.faults.append(fault)
        assert recovered(facts) == (0, 1)


def test_recovery_does_not_count_where_somebody_who_was_killed_too_kept_the_shard():
    for shard, found in ((SHARD, (0, 1)), ((SHARD + 1) % SHARDS, (1, 0))):
        facts = taken_over_run()
        facts.changes.insert(spot(facts, "row", 1) - 1, locked(1, 11.0, "l9", "w3", shard=shard))
        facts.faults.append(Fault("kill", "w3", 11.1, 11.1))
        assert recovered(facts) == found


def test_what_came_when_the_promise_was_broken_already_excuses_nothing():
    for fault in (Fault("restart", None, 33.2, 33.5), Fault("stop", "w3", 33.2, 34.0), Fault("kill", "w2", 33.2, 33.2)):
        facts = begun_again_at(72.2)
        facts.faults.append(fault)
        assert recovery_times(facts).measured == [pytest.approx(62.0)]
        assert [*slow_recovery(facts)] == [
            "p50 62.00 s, p99 62.00 s, most 62.00 s: 1 measured, 0 excused by another fault"
        ]


def test_what_came_before_excuses_also_what_took_long():
    facts = begun_again_at(15.0)
    facts.faults.append(Fault("restart", None, 13.1, 14.0))
    assert recovered(facts) == (0, 1)
    assert [*slow_recovery(facts)] == []


def test_many_kills_must_leave_something_to_measure():
    facts = taken_over_run()
    facts.faults += [Fault("kill", f"w{number}", 50.0, 50.0) for number in range(10, 8 + MANY)]  # with the first: 19
    assert [*slow_recovery(facts)] == []
    facts.faults.append(Fault("kill", "w99", 50.0, 50.0))
    (objection,) = slow_recovery(facts)
    assert objection.startswith(f"too little was measured after {MANY} kills: p50 1.90 s")
    facts.faults.append(Fault("restart", None, 11.0, 11.5))
    (objection,) = slow_recovery(facts)
    assert objection.endswith("0 measured, 1 excused by another fault")


def test_kills_of_clients_leave_nothing_to_measure():
    facts = taken_over_run()
    facts.faults += [Fault("kill", f"c{number}", 50.0, 50.0) for number in range(MANY)]
    assert [*slow_recovery(facts)] == []


def test_progress_is_from_the_end_of_a_restart_to_the_next_claim():
    facts = taken_over_run()
    facts.faults = [Fault("restart", None, 7.0, 8.0), Fault("restart", None, 9.0, 9.5)]
    assert progress_times(facts).measured == [pytest.approx(0.55)]
    assert progress_times(facts).excused == 1


def test_many_restarts_must_leave_something_to_measure():
    facts = taken_over_run()
    facts.faults = [Fault("restart", None, 50.0 + number, 50.5 + number) for number in range(MANY)]
    (objection,) = slow_progress(facts)
    assert objection == f"too little was measured after {MANY} restarts: 0 measured, {MANY} excused by another fault"


# Repeated actions.


def ticking(*begun: float, cancelled_at: float = 60.0) -> Facts:
    """Scheduled at 20, and started by w2 at these moments."""
    facts = taken_over_run()
    facts.operations += [
        called("c8", 20.0, ids=("t-1",), handler="tick", guid="t"),
        called("c9", cancelled_at, "cancel", ids=("t-1",), guid="u"),
    ]
    facts.actions["t-1"] = ActionRow("t-1", "u", "cancelled", len(begun), 0, 0)
    for tick, moment in enumerate(begun):
        facts.runs.append(ran(moment, writer="w2", id="t-1", guid="t", tick=tick, attempt=tick + 1))
        facts.changes.append(claimed(90 + tick, moment, tick + 1, "w2", id="t-1", guid="t", claim=f"t{tick}"))
    return facts


def every_two_seconds(*stretches: tuple[float, float]) -> list[float]:
    return [since + 2 * number for since, until in stretches for number in range(int((until - since) / 2) + 1)]


def test_a_repeated_action_that_runs_in_every_interval_is_as_it_should_be():
    assert [*missed_ticks(ticking(*every_two_seconds((20.1, 60.0))))] == []


@pytest.mark.parametrize(
    "begun",
    [
        every_two_seconds((26.0, 60.0)),  # begun late
        every_two_seconds((20.1, 40.0), (46.0, 60.0)),
        every_two_seconds((20.1, 40.0)),  # ended early
    ],
)
def test_an_interval_without_a_start_needs_an_explanation(begun: list[float]):
    assert len([*missed_ticks(ticking(*begun))]) == 1


def test_a_fault_explains_a_lease_and_a_second_after_it():
    begun = every_two_seconds((20.1, 40.1), (46.0, 60.0))
    for fault in (Fault("restart", None, 41.0, 43.0), Fault("stop", "w3", 43.0, 45.9), Fault("stop", "w1", 43.0, 45.9)):
        facts = ticking(*begun)
        facts.faults.append(fault)
        assert len([*missed_ticks(facts)]) == (fault.writer == "w1")  # which was dead, and had nothing to do with it
    facts = ticking(*every_two_seconds((20.1, 40.1), (54.0, 60.0)))
    facts.faults.append(Fault("restart", None, 41.0, 43.0))
    assert len([*missed_ticks(facts)]) == 1
