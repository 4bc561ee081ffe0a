"""Whatever is done to queues, in whichever order, the three storages give the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.queues import Storage, clear, opened, storage_of

from matrixsched.clock import ManualClock, SeededChance
from matrixsched.queues.memory import MemoryStorage
from matrixsched.rules.queues import NewItem, StoredTask
from matrixsched.store.store import Store

SECOND = timedelta(seconds=1)
QUEUES = (1, 2)


@dataclass
class Player:
    """One storage, and all that was ever taken from it, by its number."""

    storage: Storage
    taken: list[StoredTask] = field(default_factory=list)
    first_id: int | None = None

    def number(self, id: int) -> int:
        """Ids begin anywhere; what counts is how far they are from the first."""
        self.first_id = id if self.first_id is None else self.first_id
        return id - self.first_id

    def some(self, numbers: Sequence[int]) -> list[StoredTask]:
        return [self.taken[number % len(self.taken)] for number in numbers] if self.taken else []

    def ids(self, numbers: Sequence[int] | None) -> list[int] | None:
        return None if numbers is None else [(self.first_id or 1) + number for number in numbers]

    # What is done; each answers in numbers that all three have in common.

    async def put(self, items: Sequence[tuple[int, int]]) -> list[int]:
        new = [NewItem(queue=queue, data=b"%d" % delay, delay=delay * SECOND) for queue, delay in items]
        return [self.number(id) for id in await self.storage.put_many(new)]

    async def get(self, queue: int, count: int, visibility: int) -> list[Any]:
        tasks = await self.storage.get(queue, count, visibility=visibility * SECOND)
        self.taken += tasks
        return [
            (self.number(t.id), t.queue, t.data, t.attempts, t.created_at, t.start_at, t.previous_start_at)
            for t in tasks
        ]

    async def done(self, numbers: Sequence[int]) -> object:
        return self.settled(await self.storage.done(self.some(numbers)))

    async def retry(self, numbers: Sequence[int], delay: int) -> object:
        return self.settled(await self.storage.retry([(task, delay * SECOND) for task in self.some(numbers)]))

    async def set_aside(self, numbers: Sequence[int]) -> object:
        letters = [(task, f"attempt {task.attempts}") for task in self.some(numbers)]
        return self.settled(await self.storage.set_aside(letters))

    async def extend(self, numbers: Sequence[int], visibility: int) -> object:
        return self.settled(await self.storage.extend(self.some(numbers), visibility=visibility * SECOND))

    def settled(self, answer: Any) -> object:
        return sorted(map(self.number, answer.settled)), sorted(map(self.number, answer.stale))

    async def redrive(self, queue: int, numbers: Sequence[int] | None, limit: int) -> int:
        return await self.storage.redrive(queue, ids=self.ids(numbers), limit=limit)

    async def purge_dead(self, queue: int, numbers: Sequence[int] | None, limit: int) -> int:
        return await self.storage.purge_dead(queue, ids=self.ids(numbers), limit=limit)

    async def pause(self, queue: int) -> bool:
        return await self.storage.pause(queue)

    async def resume(self, queue: int) -> bool:
        return await self.storage.resume(queue)

    async def look(self) -> object:
        """All that can be seen without taking anything."""
        dead = [await self.storage.dead_letters(queue) for queue in QUEUES]
        letters = [(self.number(d.id), d.data, d.attempts, d.died_at, d.reason) for page in dead for d in page]
        return await self.storage.stat(), letters


SOME = st.lists(st.integers(0, 30), min_size=1, max_size=6)
A_QUEUE = st.sampled_from(QUEUES)
A_FEW = st.integers(1, 5)
CHOSEN = st.none() | st.lists(st.integers(0, 12), max_size=4)
TIMES = st.integers(1, 6)

PUT = st.tuples(st.just("put"), st.lists(st.tuples(A_QUEUE, st.integers(0, 4)), min_size=1, max_size=5))
GET = st.tuples(st.just("get"), A_QUEUE, A_FEW, TIMES)
STEPS = st.lists(
    st.one_of(
        PUT,
        PUT,
        GET,
        GET,
        GET,
        st.tuples(st.just("done"), SOME),
        st.tuples(st.just("retry"), SOME, st.integers(0, 4)),
        st.tuples(st.just("set_aside"), SOME),
        st.tuples(st.just("extend"), SOME, TIMES),
        st.tuples(st.just("pass"), st.integers(1, 4)),
        st.tuples(st.just("pass"), st.integers(1, 4)),
        st.tuples(st.just("redrive"), A_QUEUE, CHOSEN, A_FEW),
        st.tuples(st.just("purge_dead"), A_QUEUE, CHOSEN, A_FEW),
        st.tuples(st.sampled_from(["pause", "resume"]), A_QUEUE),
    ),
    min_size=10,
    max_size=40,
)


@dataclass
class Stores:
    portal: BlockingPortal
    clock: ManualClock
    stores: list[Store]

    def play(self, steps: Sequence[tuple[Any, ...]]) -> None:
        self.portal.call(self._play, steps)

    async def _play(self, steps: Sequence[tuple[Any, ...]]) -> None:
        for store in self.stores:
            await clear(store)
        players = [Player(MemoryStorage(clock=self.clock, chance=SeededChance(1)))]
        players += [Player(storage_of(store)) for store in self.stores]
        for name, *given_to_it in steps:
            if name == "pass":
                self.clock.advance(given_to_it[0] * SECOND)
            else:
                answers = [await self._doing(player, name)(*given_to_it) for player in players]
                assert answers[1:] == answers[:1] * len(self.stores), (name, *given_to_it)
            seen = [await player.look() for player in players]
            assert seen[1:] == seen[:1] * len(self.stores), (name, *given_to_it)

    def _doing(self, player: Player, name: str) -> Callable[..., Any]:
        doing: Callable[..., Any] = getattr(player, name)
        return doing


@pytest.fixture(scope="module")
def stores(queues_dsn: str) -> Iterator[Stores]:
    clock = ManualClock()

    async def open_both(stack: AsyncExitStack) -> list[Store]:
        return [await stack.enter_async_context(opened(url, clock)) for url in ("sqlite://", queues_dsn)]

    with start_blocking_portal() as portal:
        stack = AsyncExitStack()
        yield Stores(portal, clock, portal.call(open_both, stack))
        portal.call(stack.aclose)


ALL_AT_ONCE: list[tuple[Any, ...]] = [
    ("put", [(1, 0), (1, 0), (2, 3), (1, 2)]),
    ("get", 1, 2, 1),
    ("pass", 1),
    ("get", 1, 5, 4),
    ("extend", [0, 2], 2),
    ("retry", [0, 1, 2], 1),
    ("set_aside", [3, 0]),
    ("pass", 2),
    ("get", 1, 5, 1),
    ("done", [0, 1, 2, 3, 4, 5]),
    ("redrive", 1, None, 5),
    ("pause", 1),
    ("get", 1, 5, 1),
    ("resume", 1),
    ("get", 1, 5, 1),
]


@example(ALL_AT_ONCE)
@given(STEPS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_three_storages_give_the_same_answers(stores: Stores, steps: list[tuple[Any, ...]]):
    stores.play(steps)
