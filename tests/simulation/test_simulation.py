"""Some hundred seeds without a violation, each replayed exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.faults import FaultPlan
from simulation.world import World, simulate

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 200
CHUNK = 10
ONCE_VIOLATED = (312, 2574)
"""Seeds of long runs with a find, in the product or in a judge."""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_violates_anything(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check(seed)


@pytest.mark.parametrize("seed", ONCE_VIOLATED)
def test_a_seed_that_violated_something_does_so_no_more(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    result = simulate(seed)
    assert not result.violations, f"./tools/dev simulate --seed {seed} --trace  # {result.violations[0]}"


def test_a_seed_is_one_run() -> None:
    first, second, other = simulate(3), simulate(3), simulate(4)
    assert (first.trace_hash, first.steps, first.virtual_s) == (second.trace_hash, second.steps, second.virtual_s)
    assert first.trace_hash != other.trace_hash


def test_a_seed_is_the_same_run_in_another_process() -> None:
    command = [sys.executable, str(ROOT / "tools" / "simulate.py"), "--seed", "3"]
    told = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]
    assert told[0].stdout == told[1].stdout
    assert simulate(3).trace_hash in told[0].stdout


def test_there_are_runs_with_and_without_faults() -> None:
    plans = [_plan_of(seed) for seed in range(SEEDS)]
    assert any(plan.is_faultless for plan in plans)
    assert {fault for plan in plans for fault in plan.rates}
    assert any(plan.crashes_every_s for plan in plans)
    assert any(plan.stops_every_s for plan in plans)


def _plan_of(seed: int) -> FaultPlan:
    world = World(seed)
    world.loop.close()
    return world.plan
