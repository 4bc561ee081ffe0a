"""Semaphores in a run: few places, clients that enqueue and release, handlers that use places and make room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio

from matrixsched.app import App
from matrixsched.context import Context
from matrixsched.errors import MatrixSchedError
from matrixsched.rules.outcome import HandlerOutcome, RetryAt
from matrixsched.rules.semaphore import EVENT_RETRY, acquired_handler, event_id, semaphore_of, try_release_handler
from matrixsched.semaphores import Acquired, TaskSemaphore, TryRelease
from simulation import semaphore_checkers, semaphore_end_checkers
from simulation.actors import OPERATION, Behaviour, Client, Trouble, _handler, reply_to
from simulation.commit_checkers import Commit, Objections
from simulation.history import Operation, Reply
from simulation.parts import Call as Doing
from simulation.parts import Part
from simulation.semaphore_notes import Call, SemaphoreNotes, TaskRow

if TYPE_CHECKING:
    from simulation.world import World

Event = Acquired | TryRelease

TIMEOUT_S = 8.0
PRIORITIES = (-1.0, 0.0, 0.0, 1.0, 1.0, 2.5, 7.0)
"""Often equal ones."""


class Semaphores(Part):
    name = "semaphores"
    at_every_commit = semaphore_checkers.AT_EVERY_COMMIT
    at_the_end = semaphore_end_checkers.AT_THE_END

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.notes = SemaphoreNotes(world)
        self.keys = [f"pool-{number}" for number in range(self._chance.choice((1, 1, 1, 2, 3)))]
        self._task_ids = [f"task-{number}" for number in range(self._chance.randint(4, 14))]

    async def install(self, app: App) -> None:
        for key in self.keys:
            pool = await app.semaphores.get_or_create(key, **self._settings())
            if self._chance.random() < 0.7:
                await pool.enqueue_many(self._priorities())
        self.notes.begin()

    def _settings(self) -> dict[str, Any]:
        active = self._chance.choice((0, 1, 1, 2, 2, 3, 3, 4, 5))
        hold_for = self._hold_for() if self._chance.random() < 0.3 else None
        return {"active": active, "try_release": self._chance.randint(0, active), "hold_for": hold_for}

    def _hold_for(self) -> timedelta:
        return timedelta(seconds=self._chance.choice((1.5, 5, 12)))

    def _priorities(self) -> dict[str, float]:
        ids = self._chance.sample(self._task_ids, k=self._chance.randint(1, len(self._task_ids)))
        return {id: self._priority() for id in ids}

    def _priority(self) -> float:
        return self._chance.choice(PRIORITIES)

    def committed(self, commit: Commit) -> None:
        self.notes.committed(commit)

    def unrest(self) -> Objections:
        state, actions = self.notes.after, self._world.snapshot.actions
        yield from (f"{key} is to be balanced" for key, _ in sorted(state.marks))
        yield from (f"{id} is to be told" for id, one in actions.items() if one.state == "live" and semaphore_of(id))
        for task in state.tasks.values():
            if task.hold_until is not None:
                yield f"{task.id} of {task.semaphore} still holds a place that is to be renewed"
            if task.state == "asked" and not self._is_quarantined(task):
                yield f"{task.id} of {task.semaphore} is asked for its place"

    def _is_quarantined(self, task: TaskRow) -> bool:
        """Whether that which asks it interrupted its workers so often that it is not tried any more."""
        return self._world.last_seen[event_id(try_release_handler(task.semaphore), task.id)].state == "quarantined"

    # Handlers.

    @property
    def behaviours(self) -> Mapping[str, Behaviour]:
        behaviour = Behaviour(self._work, timeout_s=TIMEOUT_S, retry=EVENT_RETRY)
        return {name(key): behaviour for key in self.keys for name in (acquired_handler, try_release_handler)}

    async def _work(self, chance: Random) -> HandlerOutcome | None:
        """For a while; only as long as everything goes wrong, it does too."""
        if not self._world.is_chaotic:
            return None
        await anyio.sleep(chance.choice((0, chance.uniform(0, 1), chance.uniform(0, TIMEOUT_S + 1))))
        if chance.random() < 0.2:
            raise Trouble("as often")
        return RetryAt(timedelta(seconds=chance.uniform(0, 3))) if chance.random() < 0.1 else None

    def register(self, app: App, host: str) -> None:
        timeout = timedelta(seconds=TIMEOUT_S)
        for key in self.keys:

            @app.on_acquired(key, timeout=timeout)
            async def acquired(event: Acquired, context: Context) -> HandlerOutcome | None:
                return await self._handle(app, host, event, context, self._use_place)

            @app.on_try_release(key, timeout=timeout)
            async def try_release(event: TryRelease, context: Context) -> HandlerOutcome | None:
                return await self._handle(app, host, event, context, self._make_room)

    async def _handle(
        self,
        app: App,
        host: str,
        event: Event,
        context: Context,
        answer: Callable[[TaskSemaphore, str, Event], Awaitable[None]],
    ) -> HandlerOutcome | None:
        async def play(chance: Random) -> HandlerOutcome | None:
            outcome = await self._work(chance)
            if outcome is None:
                await answer(TaskSemaphore(app.semaphores, event.semaphore_key), host, event)
            return outcome

        behaviour = replace(self.behaviours[context.handler], play=play)
        return await _handler(self._world, host, behaviour)(context)

    async def _use_place(self, pool: TaskSemaphore, host: str, event: Event) -> None:
        """In the end places that lapse are released, or they would be given for ever; the others are kept."""
        if not self._world.is_chaotic:
            if self.notes.after.semaphores[pool.key].hold_for is not None:
                await self._release(pool, host, event)
            return
        point = self._chance.random()
        if point < 0.2:
            await self._release(pool, host, event)
        elif point < 0.35:
            await self._step_back(pool, host, event, priority=self._chance.choice((None, self._priority())))
        elif point < 0.5:
            await pool.renew(event.task_id, hold=event.hold)

    async def _make_room(self, pool: TaskSemaphore, host: str, event: Event) -> None:
        if self._world.is_chaotic and self._chance.random() < 0.3:
            await self._release(pool, host, event)
        else:
            await self._step_back(pool, host, event, priority=None)

    async def _release(self, pool: TaskSemaphore, host: str, event: Event) -> None:
        missing_ok = self._chance.random() < 0.7
        with self._handling(host, "release", pool.key, event.task_id) as call:
            call.answer = await pool.release(event.task_id, hold=event.hold, missing_ok=missing_ok)

    async def _step_back(self, pool: TaskSemaphore, host: str, event: Event, *, priority: float | None) -> None:
        with self._handling(host, "step_back", pool.key, event.task_id) as call:
            call.answer = await pool.step_back(event.task_id, hold=event.hold, priority=priority)

    @contextmanager
    def _handling(self, host: str, kind: str, *ids: str) -> Iterator[Call]:
        """What a handler calls: where it is refused, the handler fails."""
        with self._called(host, kind, *ids) as call:
            yield call
        if call.operation.reply is not Reply.OK:
            raise Trouble(f"{kind} was {call.operation.reply}")

    # Clients.

    @property
    def operations(self) -> Mapping[Doing, float]:
        return {
            self.enqueue: 10,
            self.enqueue_many: 6,
            self.release: 5,
            self.release_many: 2,
            self.step_back: 4,
            self.renew: 2,
            self.update: 4,
            self.balance: 3,
        }

    async def enqueue(self, client: Client) -> None:
        pool, id = self._pool(client), self._chance.choice(self._task_ids)
        with self._called(client._host, "enqueue", pool.key, id) as call:
            call.answer = await pool.enqueue(id, self._priority())

    async def enqueue_many(self, client: Client) -> None:
        pool, priorities = self._pool(client), self._priorities()
        with self._called(client._host, "enqueue", pool.key, *priorities) as call:
            call.answer = await pool.enqueue_many(priorities)

    async def release(self, client: Client) -> None:
        pool = self._pool(client)
        id, hold = self._somebody(pool.key)
        with self._called(client._host, "release", pool.key, id) as call:
            call.answer = await pool.release(id, hold=hold, missing_ok=self._chance.random() < 0.5)

    async def release_many(self, client: Client) -> None:
        pool = self._pool(client)
        ids = list({self._somebody(pool.key)[0]: None for _ in range(3)})
        missing_ok = self._chance.random() < 0.5
        with self._called(client._host, "release_there" if missing_ok else "release", pool.key, *ids) as call:
            call.answer = await pool.release_many(ids, missing_ok=missing_ok)

    async def step_back(self, client: Client) -> None:
        pool = self._pool(client)
        id, hold = self._somebody(pool.key)
        with self._called(client._host, "step_back", pool.key, id) as call:
            call.answer = await pool.step_back(id, hold=hold, priority=self._chance.choice((None, self._priority())))

    async def renew(self, client: Client) -> None:
        pool = self._pool(client)
        id, hold = self._somebody(pool.key)
        with self._called(client._host, "renew", pool.key, id) as call:
            call.answer = await pool.renew(id, hold=hold)

    async def update(self, client: Client) -> None:
        pool, change = self._pool(client), self._settings()
        if change["hold_for"] is None:
            del change["hold_for"]
            change["holds_for_good"] = self._chance.random() < 0.3
        if self._chance.random() < 0.5:
            del change["try_release"]
        with self._called(client._host, "update", pool.key):
            await client._app.semaphores.update(pool.key, **change)

    async def balance(self, client: Client) -> None:
        pool = self._pool(client)
        with self._called(client._host, "balance", pool.key):
            await pool.balance()

    def _pool(self, client: Client) -> TaskSemaphore:
        return TaskSemaphore(client._app.semaphores, self._chance.choice(self.keys))

    def _somebody(self, key: str) -> tuple[str, UUID | None]:
        """Mostly one who is there, sometimes in the time that it is there for."""
        state = self.notes.after
        there = state.holders(key) or state.waiting(key)
        if not there or self._chance.random() < 0.2:
            return self._chance.choice(self._task_ids), None
        task = self._chance.choice(there)
        return task.id, UUID(task.guid) if self._chance.random() < 0.4 else None

    @contextmanager
    def _called(self, host: str, kind: str, *ids: str) -> Iterator[Call]:
        """Note what is asked of a semaphore, its key the first of the ids, and what comes of it."""
        history = self._world.history
        number = history.note(host, kind, *ids)
        call = Call(Operation(kind, host, ids, number, self._world.clock.now(), None))
        self.notes.calls.append(call)
        token = OPERATION.set(call.operation)
        try:
            yield call
            history.reply(call.operation, Reply.OK, what=call.answer)
        except MatrixSchedError as error:
            history.reply(call.operation, reply_to(error), what=type(error).__name__)
        finally:
            OPERATION.reset(token)
