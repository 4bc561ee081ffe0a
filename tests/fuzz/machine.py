"""The model: clients and workers on SQLite and on PostgreSQL side by side, one step at a time.

After each step all that can be seen through the public API, and all rows, are the same on both. Time is shared, and
chance has the same seed, so not even guids differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from fuzz import values as v
from fuzz.crew import OUTCOMES, QUEUES, STEPS, Crew
from fuzz.inputs import Input, Made
from fuzz.judge import verdict_of
from fuzz.sides import Side, Sides
from fuzz.surfaces import inputs
from fuzz.verdicts import Found, Signature, Tally, Verdict, Violation, difference, plain
from matrixsched import App, TaskSemaphore

CLIENT = inputs()
scripts = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4)
SCHEDULE_OPTIONS: dict[str, Any] = {
    "delay": st.integers(0, 20).map(lambda seconds: timedelta(seconds=seconds)),
    "template": st.sampled_from(["news", "alerts"]),
    "limit": st.sampled_from(["k1", "k2"]),
    "priority": st.integers(0, 2),
    "repeat": st.just(Made("every", (timedelta(seconds=30),))),
    "expires_at": st.integers(1, 60).map(lambda seconds: v.START + timedelta(seconds=seconds)),
    "start_within": st.integers(1, 20).map(lambda seconds: timedelta(seconds=seconds)),
}


async def observe(app: App, seen_before: dict[str, Any] | None = None) -> dict[str, Any]:
    """All that a client can see; the details of an action only if it is not as it was seen before."""
    actions = await app.list(limit=1000)
    seen: dict[str, Any] = {f"action {action.id}": plain(action) for action in actions}
    known = seen_before or {}
    for action in actions:
        if seen[f"action {action.id}"] != known.get(f"action {action.id}"):
            about = await app.history(action.id), await app.next_runs(action.id, 3), await app.explain(action.id)
            seen[f"about {action.id}"] = plain(about)
    seen["gates"] = plain([await app.limits.list(keys=True), await app.quota.settings()])
    seen["templates"] = plain([(one, await app.templates.count(one.name)) for one in await app.templates.list()])
    for semaphore in await app.semaphores.list():
        seen[f"semaphore {semaphore.key}"] = plain(await _crowd(await app.semaphores.get(semaphore.key)))
    storage: Any = app.queues.storage_over(app.store)
    seen["queues"] = plain([await app.queues.stat(), await storage.stat(), await storage.settings()])
    for name in QUEUES:
        number = app.queues.handlers.queue(name).id
        seen[f"queue {name}"] = plain([await app.queues.dead_letters(name), await storage.peek(number)])
    seen["shards"] = plain(await app.shards())
    return seen


async def _crowd(pool: TaskSemaphore) -> list[Any]:
    waiting = await pool.waiting()
    places = [await pool.position(task.id) for task in waiting]
    return [await pool.holders(), waiting, places, await pool.statistics()]


class Pair:
    """Both sides and their workers, through one run of the machine."""

    def __init__(self, sides: Sides, tallies: dict[str, Tally], known: Collection[Signature]) -> None:
        self._sides, self._tallies, self._known = sides, tallies, known
        self._steps: list[Input] = []
        self._seen: dict[str, Any] = {}
        self._has_ended = False
        """Something known was found: what comes after it may only follow from it."""
        sides.portal.call(sides.restore)
        self._crews = {side: Crew(side) for side in sides.both}

    def step(self, given: Input) -> None:
        self._steps.append(given)
        self._unless_ended(self._step, given)

    def finish(self) -> None:
        """Look at everything once more, whether it changed or not: time has passed."""
        self._unless_ended(self._compare, None)

    def _unless_ended(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        if self._has_ended:
            return
        try:
            self._sides.portal.call(work, *args)
        except Found as found:
            self._has_ended = True
            if found.violation.signature not in self._known:
                raise

    async def _step(self, given: Input) -> None:
        before = self._sides.clock.now()
        if given.surface == "pass":
            self._sides.clock.advance(timedelta(seconds=given.args[0]))
        else:
            one, other = [await self._verdict(side, given) for side in self._sides.both]
            self._tallies.setdefault(_kind(given), Tally()).count(one, ())
            self._expect("answers otherwise", given.surface, one, other)
            if self._sides.clock.now() != before:
                self._fail(Violation("moved the clock", given.surface, str(self._sides.clock.now())))
        await self._compare(self._seen)

    async def _compare(self, seen_before: dict[str, Any] | None) -> None:
        rows, others = await self._sides.contents()
        for name in rows:
            self._expect("wrote other rows", name, rows[name], others[name])
        one, other = [await observe(side.app, seen_before) for side in self._sides.both]
        for name in sorted(one.keys() | other.keys()):
            self._expect("shows something else", name.partition(" ")[0], one.get(name), other.get(name))
        self._seen = one

    async def _verdict(self, side: Side, given: Input) -> Verdict:
        if given.surface.startswith("worker."):
            return Verdict("accepted", await self._crews[side].step(given.surface.partition(".")[2], *given.args))
        verdict = await verdict_of(side, given)
        if verdict.kind == "unhandled":
            self._fail(Violation("unhandled", given.surface, f"on {side.name}: {verdict}", verdict.what[0]))
        return verdict

    def _expect(self, rule: str, where: str, one: Any, other: Any) -> None:
        if one != other:
            self._fail(Violation(rule, where, difference(one, other)))

    def _fail(self, violation: Violation) -> None:
        raise Found(violation, self._steps, "model")


def _kind(given: Input) -> str:
    return f"model: {given.surface if given.surface.startswith('worker.') else 'clients'}"


class Machine(RuleBasedStateMachine):
    """Steps of clients and workers in any order."""

    begin: ClassVar[Callable[[], Pair]]

    def __init__(self) -> None:
        super().__init__()
        self.pair = type(self).begin()

    def teardown(self) -> None:
        self.pair.finish()

    @rule(given=CLIENT)
    def client(self, given: Input) -> None:
        self.pair.step(given)

    @rule(
        id=st.sampled_from(["a", "b", "c", "d"]),
        outcomes=scripts,
        options=st.fixed_dictionaries({}, optional=SCHEDULE_OPTIONS),
    )
    def schedule(self, id: str, outcomes: list[str], options: dict[str, Any]) -> None:
        self.pair.step(Input("schedule", ("scripted", {"outcomes": outcomes}), {"id": id, **options}))

    @rule(surface=st.sampled_from(["cancel", "run_now", "reschedule"]), id=st.sampled_from(["a", "b", "c"]))
    def change(self, surface: str, id: str) -> None:
        self.pair.step(Input(surface, (id,)))

    @rule(numbers=st.lists(st.integers(0, 9), min_size=1, max_size=4), delay=st.integers(0, 3))
    def put(self, numbers: list[int], delay: int) -> None:
        tasks = [Made("Mixed", (), {"number": number}) for number in numbers]
        self.pair.step(Input("queues.put_many", (tasks,), {"delay": timedelta(seconds=delay)}))

    @rule(task=st.sampled_from(["t1", "t2", "t3", "t4"]), priority=st.integers(0, 3), active=st.integers(0, 3))
    def enqueue(self, task: str, priority: int, active: int) -> None:
        self.pair.step(Input("semaphores.update", ("small",), {"active": active}))
        self.pair.step(Input("semaphore.enqueue", ("small", task), {"priority": priority}))

    @rule(name=st.sampled_from(STEPS), number=st.integers(0, 1))
    def work(self, name: str, number: int) -> None:
        self.pair.step(Input(f"worker.{name}", (number,)))

    @rule(number=st.integers(0, 1), seconds=st.sampled_from([1, 5, 11, 60, 3600]))
    def wait_and_work(self, number: int, seconds: int) -> None:
        self.pair.step(Input("pass", (seconds,)))
        self.pair.step(Input("worker.run_due", (number,)))


class Model:
    """The machine on two databases, and a way to play again what it found."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        self.tallies: dict[str, Tally] = {}
        self.known: set[Signature] = set()

    def machine(self) -> type[Machine]:
        class OnSides(Machine):
            begin = staticmethod(lambda: Pair(self.sides, self.tallies, self.known))

        return OnSides

    def play(self, steps: Sequence[Input]) -> None:
        pair = Pair(self.sides, self.tallies, self.known)
        for given in steps:
            pair.step(given)
        pair.finish()
