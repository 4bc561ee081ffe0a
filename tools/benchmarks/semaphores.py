"""Workloads of semaphores: what a balance costs, however many tasks wait, and what semaphores at rest cost."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from functools import partial

import anyio

from benchmarks.measuring import Figure, Measured, Run, run_loop, spread_of
from benchmarks.parts import installed
from benchmarks.places import Place
from benchmarks.statements import FORGET_EVENTS, IDLE_SEMAPHORES, SEMAPHORE_TASKS
from matrixsched.app import App
from matrixsched.store.semaphores import Balanced

ACTIVE = 1_000
TRY_RELEASE = 900
WAITING_FEW = 1_000
URGENT = 100
BALANCES = 15
LOOKS = 400
TURNS = 5
WARM_UP_LOOKS = 20


def balance(run: Run) -> Measured:
    """one balance of a semaphore for which a million tasks wait: 1,000 hold, and 100 urgent ones came"""
    return _balanced(run, waiting=run.scale.waiting)


def balance_small(run: Run) -> Measured:
    """as balance, where 1,000 tasks wait"""
    return _balanced(run, waiting=WAITING_FEW)


def _balanced(run: Run, *, waiting: int) -> Measured:
    times_s: list[float] = []
    violations: list[str] = []
    urgent = {f"urgent-{number}": 9.0 for number in range(URGENT)}

    async def prepare() -> None:
        async with installed(run) as app:
            await app.semaphores.get_or_create("pool", active=ACTIVE, try_release=TRY_RELEASE)

    async def work() -> None:
        async with run.place.app() as app:
            pool = await app.semaphores.get("pool")
            for _ in range(BALANCES):
                await pool.enqueue_many(urgent)
                begun = time.perf_counter()
                came = await _balance(run, app)
                times_s.append(time.perf_counter() - begun)
                await pool.release_many(urgent)
                left = await _balance(run, app)
                await anyio.to_thread.run_sync(run.place.ask, FORGET_EVENTS)
                violations.extend(_check(came, left, len(await pool.holders())))

    run_loop(prepare)
    text = SEMAPHORE_TASKS[run.place.dialect]
    run.place.ask(text.format(prefix="held", count=ACTIVE, state="'acquired'", acquired_at="enqueued_at", above=1))
    run.place.ask(text.format(prefix="waiting", count=waiting, state="'waiting'", acquired_at="null", above=0))
    run.place.settle()
    run_loop(work)
    return Measured(spread_of(times_s)[:1], violations)


async def _balance(run: Run, app: App) -> Balanced | None:
    return await app.store.run(app.store.transitions.balance("pool", app.chance.guid, shards=run.shards))


def _check(came: Balanced | None, left: Balanced | None, held: int) -> list[str]:
    if came is None or left is None or not (came.is_complete and left.is_complete):
        return ["a balance was left to somebody else, or not complete"]
    changes = (len(came.acquired), len(came.asked), len(left.acquired), len(left.kept), held)
    if changes != (0, URGENT, 0, URGENT, ACTIVE):
        return [f"acquired, asked, then acquired, no longer asked, held: {changes}"]
    return []


def semaphores_idle(run: Run) -> Measured:
    """a worker's look for semaphores to balance, where 10,000 are at rest; and divided by that where there are none"""
    violations: list[str] = []

    async def look(app: App) -> float:
        begun = time.perf_counter()
        found = await app.store.run(app.store.transitions.changed_semaphores())
        elapsed_s = time.perf_counter() - begun
        if found.changed:
            violations.append(f"{len(found.changed)} semaphores at rest are to be balanced")
        return elapsed_s

    async def look_at_both(none: Place) -> tuple[float, float]:
        """Seconds, where there are none and where they are: on connections of their own, which are other ones in each
        turn, as where a connection's process is kept decides as well."""
        times_s: list[tuple[float, float]] = []
        async with none.app() as without, run.place.app() as beside:
            for number in range(-WARM_UP_LOOKS, LOOKS):
                # They take turns: a look takes so little that a busy moment of the machine would decide.
                pair = await look(without), await look(beside)
                if number >= 0:
                    times_s.append(pair)
        without_s, beside_s = zip(*times_s, strict=True)
        return statistics.median(without_s), statistics.median(beside_s)

    async def prepare(place: Place) -> None:
        async with installed(replace(run, place=place)):
            pass

    with run.place.beside() as none:
        for place in (none, run.place):
            run_loop(partial(prepare, place))
        for text in IDLE_SEMAPHORES[run.place.dialect]:
            run.place.ask(text.format(count=run.scale.semaphores))
        for place in (none, run.place):
            place.settle()
        turns = [run_loop(partial(look_at_both, none)) for _ in range(TURNS)]
    return Measured(
        [
            Figure("p50", statistics.median(beside_s for _, beside_s in turns) * 1000, "ms"),
            Figure("to none", statistics.median(beside_s / without_s for without_s, beside_s in turns), "share"),
        ],
        violations,
    )
