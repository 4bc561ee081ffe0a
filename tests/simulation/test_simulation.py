"""Two hundred seeds without a violation; and a seed is one run, whoever runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from simulation.faults import Fault, FaultPlan
from simulation.world import Result, World, simulate

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 200
COUNTED = 40
"""So many of them, the last ones, are those whose faults are counted."""
CHUNK = 10
CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)


@pytest.mark.parametrize("first", range(0, SEEDS - COUNTED, CHUNK))
def test_no_seed_violates_anything(first: int) -> None:
    for seed in range(first, first + CHUNK):
        result = simulate(seed)
        assert not result.violations, told(result)


def told(result: Result) -> str:
    return f"./tools/dev simulate --seed {result.seed} --trace  # {result.violations[0]}"


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


def test_every_kind_of_fault_strikes_workers_and_clients_and_crashes_strike_work() -> None:
    struck: set[tuple[str, str]] = set()
    crashed: set[str] = set()
    for seed in range(SEEDS - COUNTED, SEEDS):
        world = World(seed)
        result = world.run()
        assert not result.violations, told(result)
        struck |= {(fault.kind, fault.host[:6]) for fault in world.history.faults}
        crashed |= {fault.what for fault in world.history.faults if fault.kind in CRASHES}
    assert struck == {(kind, hosts) for kind in Fault for hosts in ("worker", "client")}
    assert crashed >= {"move", "claim", "record", "extend", "schedule"}


def test_there_are_runs_with_and_without_faults() -> None:
    plans = [_plan_of(seed) for seed in range(SEEDS)]
    assert any(plan.is_faultless for plan in plans)
    assert not all(plan.is_faultless for plan in plans)


def test_idle_looks_are_struck_seldom_and_marked_calls_often() -> None:
    plan = FaultPlan(rates={Fault.BUSY: 0.05}, marks=frozenset({"record"}))
    chance = Random(1)
    struck = Counter(
        name for name in ("acquire_shard", "claim", "record") for _ in range(2000) if plan.draw(chance, name)
    )
    assert struck["acquire_shard"] * 5 < struck["claim"] < struck["record"] / 3


def _plan_of(seed: int) -> FaultPlan:
    world = World(seed)
    world.loop.close()
    return world.plan
