"""Whatever is done to a semaphore, in whichever order, it is as a small model says; and comes to rest with the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.scene import SHARDS, Scene

from matrixsched.clock import ManualClock
from matrixsched.rules.semaphore import Semaphore
from matrixsched.store.opening import open_store
from matrixsched.store.semaphores import NewTask, TaskName

POOL = "pool"
SECOND = timedelta(seconds=1)


@dataclass
class Place:
    id: str
    priority: float
    enqueued_at: datetime
    state: str = "waiting"
    hold_until: datetime | None = None


@dataclass
class Model:
    """What the store is to do, in one process and with nothing in mind but the outcome."""

    active: int
    try_release: int
    hold_for: timedelta | None
    tasks: dict[str, Place] = field(default_factory=dict)
    changed: bool = False

    def ranked(self, *states: str) -> list[Place]:
        tasks = (task for task in self.tasks.values() if task.state in states)
        return sorted(tasks, key=lambda task: (-task.priority, task.enqueued_at, task.id))

    @property
    def held(self) -> list[Place]:
        return self.ranked("acquired", "asked")

    def late(self, now: datetime) -> set[str]:
        """Their places are lost; if they are no longer to be renewed, they are only found, and kept."""
        return {task.id for task in self.held if task.hold_until is not None and task.hold_until <= now}

    def until(self, now: datetime) -> datetime | None:
        return None if self.hold_for is None else now + self.hold_for

    def enqueue(self, priorities: dict[str, float], now: datetime) -> None:
        for id, priority in priorities.items():
            task = self.tasks.setdefault(id, Place(id, priority, now))
            self.changed |= task.enqueued_at == now or task.priority != priority
            task.priority = priority

    def release(self, ids: Sequence[str], *, missing_ok: bool) -> None:
        there = [id for id in ids if id in self.tasks]
        if there and (missing_ok or len(there) == len(ids)):
            self.changed = True
            for id in there:
                del self.tasks[id]

    def step_back(self, id: str, priority: float | None) -> None:
        task = self.tasks[id]
        task.state, task.hold_until, self.changed = "waiting", None, True
        if priority is not None:
            task.priority = priority

    def balance(self, now: datetime) -> tuple[list[str], list[str], list[str], set[str]]:
        lapsed = self.late(now) if self.hold_for else set()
        for id in lapsed:
            self.tasks[id].state, self.tasks[id].hold_until, self.tasks[id].enqueued_at = "waiting", None, now
        if self.hold_for is None:
            for task in self.held:
                task.hold_until = None
        holders = self.held
        acquired = self.ranked("waiting")[: max(0, self.active - len(holders))]
        for task in acquired:
            task.state, task.hold_until = "acquired", self.until(now)
        everybody, active = self.ranked("waiting", "acquired", "asked"), self.held
        asked, kept = [], []
        for task in holders:
            replaceable = active.index(task) >= self.active - self.try_release
            if replaceable and everybody.index(task) >= self.active:
                if task.state != "asked":
                    asked.insert(0, task.id)
                task.state = "asked"
            else:
                if task.state == "asked":
                    kept.append(task.id)
                task.state = "acquired"
        self.changed = False
        return [task.id for task in acquired], asked, kept, lapsed


# What is done.

IDS = st.sampled_from("abcdefgh")
MANY = st.lists(IDS, min_size=1, max_size=5, unique=True)
PRIORITIES = st.dictionaries(IDS, st.sampled_from([-1.5, 0.0, 1.0, 2.0, 3.0]), min_size=1, max_size=5)
SIZES = st.sampled_from([2, 3, 1, 4, 0]).flatmap(lambda active: st.tuples(st.just(active), st.integers(0, active)))
HOLDS = st.sampled_from([None, 2 * SECOND, 5 * SECOND])

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), PRIORITIES),
        st.tuples(st.just("enqueue"), PRIORITIES),
        st.tuples(st.just("enqueue"), PRIORITIES),
        st.tuples(st.just("release"), MANY, st.booleans()),
        st.tuples(st.just("step back"), IDS, st.sampled_from([None, 0.0, 3.0])),
        st.tuples(st.just("update"), SIZES, HOLDS),
        st.tuples(st.just("renew"), MANY),
        st.tuples(st.just("pass"), st.integers(1, 4)),
        st.tuples(st.just("balance")),
        st.tuples(st.just("balance")),
        st.tuples(st.just("balance")),
    ),
    min_size=12,
    max_size=25,
)


ASKED_AND_KEPT = [
    ("enqueue", {"a": 1.0}),
    ("balance",),
    ("enqueue", {"b": 2.0}),
    ("balance",),
    ("enqueue", {"a": 3.0}),
    ("balance",),
]
"""What chance brings about only now and then."""


@dataclass
class Play:
    scene: Scene
    model: Model

    async def enqueue(self, priorities: dict[str, float]) -> None:
        scene = self.scene
        scene.clock.advance(timedelta(microseconds=1))  # who comes later is behind
        tasks = [NewTask(id, priority, scene.guid()) for id, priority in priorities.items()]
        await scene.run(scene.do.enqueue_tasks(POOL, tasks, scene.guid(), change_guid=scene.guid(), tell=False))
        self.model.enqueue(priorities, scene.now)

    async def release(self, ids: Sequence[str], missing_ok: bool) -> None:
        scene = self.scene
        there = await scene.run(
            scene.do.release_tasks(
                POOL,
                [TaskName(id) for id in ids],
                scene.guid(),
                change_guid=scene.guid(),
                missing_ok=missing_ok,
                tell=False,
            )
        )
        assert set(there or ()) == {id for id in ids if id in self.model.tasks}
        self.model.release(ids, missing_ok=missing_ok)

    async def step_back(self, id: str, priority: float | None) -> None:
        scene, holds = self.scene, any(task.id == id for task in self.model.held)
        stepping = scene.do.step_back(
            POOL,
            TaskName(id),
            scene.guid(),
            priority=priority,
            guid=scene.guid(),
            change_guid=scene.guid(),
            tell=False,
        )
        assert await scene.run(stepping) is holds
        if holds:
            self.model.step_back(id, priority)

    async def update(self, sizes: tuple[int, int], hold_for: timedelta | None) -> None:
        active, try_release = sizes
        semaphore = Semaphore(key=POOL, active=active, try_release=try_release, hold_for=hold_for)
        await self.scene.run(self.scene.do.update_semaphore(POOL, lambda _: semaphore, self.scene.guid()))
        model = self.model
        model.active, model.try_release, model.hold_for, model.changed = active, try_release, hold_for, True

    async def renew(self, ids: Sequence[str]) -> None:
        held = {task.id: task for task in self.model.held}
        renewed = await self.scene.run(self.scene.do.renew_tasks(POOL, [TaskName(id) for id in ids]))
        assert set(renewed) == held.keys() & set(ids)
        for id in renewed:
            held[id].hold_until = self.model.until(self.scene.now)

    async def pass_time(self, seconds: int) -> None:
        self.scene.clock.advance(seconds * SECOND)

    async def balance(self) -> None:
        done = await self.scene.run(self.scene.do.balance(POOL, self.scene.guid, shards=SHARDS))
        assert done is not None
        assert done.is_complete
        before = len(self.model.held)
        found = list(done.acquired), list(done.asked), list(done.kept), set(done.lapsed)
        assert found == self.model.balance(self.scene.now)
        assert len(self.model.held) <= max(self.model.active, before)

    async def agree(self) -> None:
        scene, model = self.scene, self.model
        held = await scene.run(scene.do.held_tasks(POOL, limit=100))
        waiting = await scene.run(scene.do.waiting_tasks(POOL, limit=100))
        found = [(task.id, task.priority, task.state.value, task.hold_until) for task in [*held, *waiting]]
        expected = [*model.held, *model.ranked("waiting")]
        assert found == [(task.id, task.priority, task.state, task.hold_until) for task in expected]
        due = model.changed or model.late(scene.now)
        marked = await scene.run(scene.do.changed_semaphores(told_of=[POOL]))
        assert {*marked.changed, *marked.late} == ({POOL} if due else set())

    async def come_to_rest(self) -> None:
        """Whoever is asked steps back, until nothing changes: then the best hold places, if they may be asked."""
        model = self.model
        for _ in range(20):
            await self.balance()
            await self.agree()
            asked = [task.id for task in model.ranked("asked")]
            if not asked:
                break
            for id in asked:
                await self.step_back(id, None)
        held, waiting = model.held, model.ranked("waiting")
        assert len(held) == min(model.active, len(model.tasks))
        replaceable = held[model.active - model.try_release :]
        ranked = model.ranked("waiting", "acquired")
        if replaceable and waiting:
            assert ranked.index(replaceable[-1]) < ranked.index(waiting[0])


async def play(
    scene: Scene, sizes: tuple[int, int], hold_for: timedelta | None, steps: Sequence[tuple[object, ...]]
) -> None:
    await scene.clear()
    active, try_release = sizes
    semaphore = Semaphore(key=POOL, active=active, try_release=try_release, hold_for=hold_for)
    await scene.run(scene.do.make_semaphore(semaphore))
    on_stage = Play(scene, Model(active, try_release, hold_for))
    parts: dict[object, Callable[..., object]] = {
        "enqueue": on_stage.enqueue,
        "release": on_stage.release,
        "step back": on_stage.step_back,
        "update": on_stage.update,
        "renew": on_stage.renew,
        "pass": on_stage.pass_time,
        "balance": on_stage.balance,
    }
    for name, *given_to_it in steps:
        await parts[name](*given_to_it)  # type: ignore[misc]
        await on_stage.agree()
    await on_stage.come_to_rest()
    await scene.check_one_live_row()


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal("asyncio") as portal:
        yield portal


@pytest.fixture
def stage(portal: BlockingPortal, database_url: str) -> Iterator[Scene]:
    """A scene in a thread of its own: examples are drawn without an event loop."""
    clock = ManualClock()
    store = open_store(database_url, clock=clock)
    portal.call(store.open)
    portal.call(store.upgrade, SHARDS)
    yield Scene(store, clock)
    portal.call(store.close)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=SIZES, hold_for=HOLDS, steps=STEPS)
@example(sizes=(1, 1), hold_for=None, steps=ASKED_AND_KEPT)
def test_a_semaphore_is_as_the_model_says_and_comes_to_rest_with_the_best(
    portal: BlockingPortal,
    stage: Scene,
    sizes: tuple[int, int],
    hold_for: timedelta | None,
    steps: list[tuple[object, ...]],
) -> None:
    portal.call(play, stage, sizes, hold_for, steps)
