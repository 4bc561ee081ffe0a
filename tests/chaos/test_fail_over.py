"""What is told of each fail-over, and what is too slow after one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.facts import Facts
from chaos.fail_over import KIND, Account, accounts
from chaos.made_up import called, quiet_run, ran, taken_over_run
from chaos.nemeses import Fault
from chaos.recovery_checkers import PROGRESS_S, slow_progress


def struck(facts: Facts, *times: tuple[float, float]) -> Facts:
    return replace(facts, faults=[Fault(KIND, None, begins, ends, "kill") for begins, ends in times])


def test_a_fail_over_is_told_with_how_long_writes_and_claims_were_awaited() -> None:
    first, second = accounts(struck(quiet_run(), (8.0, 9.0), (10.2, 11.0)))
    assert (first.kind, first.away_s, first.acknowledged) == ("kill", 1.0, 0)
    assert first.idle_s == pytest.approx(2.05)
    assert second == Account("kill", pytest.approx(0.8), None, acknowledged=3, lost=0, doubles=0)  # type: ignore[arg-type]


def test_what_was_lost_and_what_ran_again_is_counted() -> None:
    facts = struck(quiet_run(), (10.2, 11.0))
    facts.operations.append(called("c9", 10.1, ids=("b",), guid="never run"))
    facts.runs.append(ran(11.5, attempt=2))
    (account,) = accounts(facts)
    assert (account.acknowledged, account.lost, account.doubles) == (4, 1, 1)


def test_a_fail_over_after_which_nothing_is_claimed_for_long_is_objected_to() -> None:
    soon = struck(taken_over_run(), (10.2, 11.0))
    late = struck(taken_over_run(), (0.0, 12.06 - PROGRESS_S - 3.0))
    assert [*slow_progress(soon)] == []
    assert len([*slow_progress(late)]) == 1
