"""Workloads of gates: what limits and quotas cost those who wait for them, and those who do not."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import anyio
from support.pacing import share_used, starts_too_many
from support.processes import scene, until

from benchmarks.checking import Tally, check_all_done
from benchmarks.measuring import Figure, Measured, Run, rate, run_loop, spread_of
from benchmarks.parts import PATIENCE_S, calls, drained, installed
from benchmarks.staging import AGO, stage
from benchmarks.statements import (
    FORGET_GRANTS,
    FORGET_WINDOWS,
    GRANTED,
    KEYS_LISTED,
    USED_UP_KEYS,
)
from matrixsched.calls import call
from matrixsched.rules.rates import Rate, parse_rate
from matrixsched.store.values import Planned

PLAN_SHARDS = 64
PLANS = 7
MAX_SEND_SPEED = "10000/min"
ZONES = 24
ROWS_OF_A_KEY = 10
FLEET = 4
RAMP = 0.1
"""The share of the starts that is left out at the beginning, while rows are still moved, and at the end."""


def plan(run: Run) -> Measured:
    """planning one window of the quota for the fleet: a million due rows, 200 templates in 24 zones, 64 shards"""
    scale = run.scale
    sized = Run(run.place, scale, PLAN_SHARDS)
    times_s: list[float] = []
    violations: list[str] = []

    async def prepare() -> None:
        async with installed(sized) as app:
            await app.limits.set("global", MAX_SEND_SPEED)
            for number in range(scale.templates):
                kind = ("uniform", "morning", "day", "evening")[number % 4]
                await app.templates.set(f"template-{number}", distribution=kind)

    async def work() -> None:
        async with run.place.app() as app:
            for _ in range(PLANS):
                await anyio.to_thread.run_sync(_forget_windows, run)
                begun = time.perf_counter()
                planned = await app.store.run(app.store.transitions.plan_window("bench"))
                times_s.append(time.perf_counter() - begun)
                violations.extend(await anyio.to_thread.run_sync(_check_plan, run, planned))

    run_loop(prepare)
    templates = scale.templates
    add_gated(sized, scale.held, "aside", template=f"'template-' || n % {templates}", zone=zone_of(f"n / {templates}"))
    run.place.settle()
    run_loop(work)
    return Measured(spread_of(times_s), violations)


def _forget_windows(run: Run) -> None:
    run.place.ask(FORGET_GRANTS)
    run.place.ask(FORGET_WINDOWS)


def _check_plan(run: Run, planned: Planned) -> list[str]:
    if planned is not Planned.NOW:
        return [f"the window was not planned: {planned}"]
    ((max_to_send, templates, granted),) = run.place.ask(GRANTED)
    if templates != run.scale.templates or granted > max_to_send:
        return [f"{granted} of {max_to_send} were granted to {templates} templates"]
    return []


def drain_template(run: Run) -> Measured:
    """actions per second of a template that nothing holds back, from before the gate to their recorded outcome"""
    return _drained_template(run, held=0)


def drain_held(run: Run) -> Measured:
    """the same, with a million due actions of another template present that its maximum speed holds back"""
    return _drained_template(run, held=run.scale.held)


def _drained_template(run: Run, *, held: int) -> Measured:
    tally = Tally(run.scale.due)

    async def prepare() -> None:
        async with installed(run) as app:
            await app.templates.set("free")
            await app.templates.set("held", max_speed="1/day")

    run_loop(prepare)
    if held:
        add_gated(run, held, "aside", template="'held'", zone=zone_of("n"))
    add_gated(run, tally.expected, "due", template="'free'", zone=zone_of("n"))
    run.place.settle()
    elapsed_s = run_loop(partial(drained, run, tally, tally.expected))
    return Measured([rate("rate", tally.expected, elapsed_s)], check_all_done(run.place, tally))


def drain_keys(run: Run) -> Measured:
    """actions per second that pass no gate, while those of 10,000 keys wait for the next slot of theirs"""
    tally = Tally(run.scale.due)

    async def prepare() -> None:
        async with installed(run) as app:
            await app.limits.set("key:*", "1/day")

    async def fill() -> None:
        async with run.place.app() as app:
            await app.schedule_many(calls(range(tally.expected)))

    run_loop(prepare)
    keys = run.scale.keys
    lane = f"'limit|0|customer-' || n % {keys} || '|count'"
    stage(run, ROWS_OF_A_KEY * keys, "aside", ahead=AGO, lane=lane)
    run.place.ask(USED_UP_KEYS.format(keys=keys))
    run.place.ask(KEYS_LISTED)
    run.place.settle()
    run_loop(fill)
    elapsed_s = run_loop(partial(drained, run, tally, tally.expected))
    return Measured([rate("rate", tally.expected, elapsed_s)], check_all_done(run.place, tally))


def zone_of(number: str) -> str:
    """SQL for one of the zones; which they are does not matter to the cost, only that they exist."""
    return f"'Etc/GMT' || case when ({number}) % {ZONES} < 12 then '-' else '+' end || ({number}) % 12 + 1"


def add_gated(run: Run, count: int, prefix: str, *, template: str, zone: str) -> None:
    lane = f"'quota|' || {template} || '|' || {zone} || '|0||count'"
    stage(run, count, prefix, ahead=AGO, lane=lane, template=template, zone=zone)


def limit_fleet(run: Run) -> Measured:
    """the share that four processes use of one limit, not counting how they start and end"""
    limit = Rate(run.scale.limit_per_s, parse_rate("1/s").per)
    count = round(run.scale.limit_per_s * run.scale.limit_s)

    async def prepare() -> None:
        async with installed(run) as app:
            await app.limits.set("global", limit)
            await app.schedule_many(call("sleep", 0.0, id=f"due-{number}") for number in range(count))

    run_loop(prepare)
    run.place.settle()
    with (
        tempfile.TemporaryDirectory(prefix="matrixsched-bench-") as folder,
        scene(run.place.url, Path(folder), installation=run.place.installation) as fleet,
    ):
        for _ in range(FLEET):
            fleet.start_worker()
        until(lambda: fleet.done() >= count, "all were run", within_s=PATIENCE_S + 10 * run.scale.limit_s)
        starts = sorted(begun for notes in fleet.account.begun_at.values() for begun, _ in notes)
    violations = [] if len(starts) == count else [f"{len(starts)} starts of {count} actions"]
    if (excess := starts_too_many(starts, limit)) > 0:
        violations.append(f"{excess:.1f} starts above {limit} × (time + 50 ms) + 1")
    edge = round(count * RAMP)
    return Measured([Figure("used", share_used(starts, limit, starts[edge], starts[-edge]), "share")], violations)
