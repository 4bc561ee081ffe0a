"""A client under chaos: schedules, replaces, moves and cancels, enqueues and puts, and notes each call and its answer.

python -m chaos.client        until SIGTERM; what it works on is in the environment, as for workers
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from traceback import format_exception
from typing import Any

import anyio

from chaos.notes import Notes
from chaos.setting import PATIENT, QUEUE, RATED, SEMAPHORE, TEMPLATES, TICK_S, Parcel, open_app
from matrixsched import App, call, every
from matrixsched.errors import DatabaseError, MatrixSchedError, OutcomeUnknown

HANDS = 8
"""Each has one call under way, and actions of its own: so of each action it is known in which order it was changed."""
KEPT = 40
"""So many actions are remembered, to be changed again."""
MANY = 10
CROWD = 20
"""So many tasks come at once now and then: some of them have to wait, and in their order."""


@dataclass
class Hand:
    """One of those that call, one call after another."""

    app: App
    notes: Notes
    name: str
    lots: random.Random
    ids: list[str] = field(default_factory=list)
    guids: dict[str, Any] = field(default_factory=dict)
    count: int = 0

    async def live(self, rest_s: float, stopping: anyio.Event) -> None:
        ticking = await self._schedule_ticking()
        while not stopping.is_set():
            began = time.monotonic()
            await self._act()
            with anyio.move_on_after(max(0.0, rest_s * 2 * self.lots.random() - (time.monotonic() - began))):
                await stopping.wait()
        await self._cancel_ticking(ticking)

    async def _act(self) -> None:
        acts: list[tuple[float, Callable[[], Awaitable[object]]]] = [
            (50, self._schedule),
            (3, self._schedule_many),
            (8, self._schedule_rated),
            (8, self._schedule_of_template),
            (8, self._put),
            (5, self._enqueue),
            (6, self._replace),
            (3, self._replace_expected),
            (4, self._cancel),
            (5, self._reschedule),
            (2, self._run_now),
        ]
        (act,) = self.lots.choices([act for _, act in acts], [weight for weight, _ in acts])
        await act()

    # Actions.

    async def _schedule(self) -> None:
        id = self._new_id("a")
        await self._write("schedule", id, **self._handler())
        self._remember(id)

    async def _schedule_rated(self) -> None:
        await self._write("schedule", self._new_id("r"), handler="work", payload=0.02, limit=RATED)

    async def _schedule_of_template(self) -> None:
        template, zone = self.lots.choice(TEMPLATES), self.lots.choice(["UTC", "Asia/Tokyo"])
        id = self._new_id(template)
        await self._write("schedule", id, handler="work", payload=0.02, template=template, zone=zone)

    async def _replace(self) -> None:
        await self._write("replace", self._old_id(), **self._handler())

    async def _replace_expected(self) -> None:
        id = self._old_id()
        if (guid := self.guids.get(id)) is not None:
            await self._write("replace", id, expected_guid=guid, **self._handler())

    async def _write(self, kind: str, id: str, *, handler: str, payload: object, **more: Any) -> None:
        timing, not_before = self._timing()
        facts = {"handler": handler, "payload": payload, "not_before": not_before}
        async with self._noted(kind, id, **facts) as answer:
            answer(await self.app.schedule(handler, payload, id=id, retry=PATIENT, **timing, **more))

    def _handler(self) -> dict[str, Any]:
        draw = self.lots.random()
        if draw < 0.1:
            return {"handler": "flaky", "payload": self.lots.randint(1, 2)}
        if draw < 0.2:
            return {"handler": "thread", "payload": round(self.lots.choice([0.0, self.lots.uniform(0, 1)]), 3)}
        longest = self.lots.choices([0.3, 3.0], [80, 20])[0]  # some take longer than their lease
        return {"handler": "work", "payload": round(self.lots.uniform(0, longest), 3)}

    def _timing(self) -> tuple[dict[str, Any], float]:
        wait = timedelta(seconds=self.lots.choice([0, 0, self.lots.uniform(0, 2)]))
        now = time.time()
        if self.lots.random() < 0.5:
            return {"delay": wait}, now + wait.total_seconds()
        at = datetime.fromtimestamp(now, UTC) + wait
        return {"at": at}, at.timestamp()

    async def _schedule_many(self) -> None:
        ids = [self._new_id("m") for _ in range(MANY)]
        timing, not_before = self._timing()
        calls = [call("work", 0.01, id=id, retry=PATIENT, **timing) for id in ids]
        async with self._noted("schedule_many", *ids, handler="work", payload=0.01, not_before=not_before):
            await self.app.schedule_many(calls)

    async def _cancel(self) -> None:
        id = self._old_id()
        async with self._noted("cancel", id) as answer:
            answer(await self.app.cancel(id))

    async def _reschedule(self) -> None:
        id, (timing, not_before) = self._old_id(), self._timing()
        async with self._noted("reschedule", id, not_before=not_before) as answer:
            answer(await self.app.reschedule(id, **timing))

    async def _run_now(self) -> None:
        id = self._old_id()
        async with self._noted("run_now", id, not_before=time.time()) as answer:
            answer(await self.app.run_now(id))

    async def _schedule_ticking(self) -> str:
        id = self._new_id("t")
        async with self._noted("schedule", id, handler="tick", payload=None, not_before=time.time()) as answer:
            answer(await self.app.schedule("tick", id=id, retry=PATIENT, repeat=every(timedelta(seconds=TICK_S))))
        return id

    async def _cancel_ticking(self, id: str) -> None:
        """Also if it has to be said several times: a repeated action that goes on would keep all from their rest."""
        for _ in range(20):
            try:
                async with self._noted("cancel", id) as answer:
                    answer(await self.app.cancel(id))
                    return
            except _Unanswered:
                await anyio.sleep(0.5)

    # Queues and semaphores.

    async def _put(self) -> None:
        tokens = [self._new_id("p") for _ in range(self.lots.choice([1, 1, 5]))]
        async with self._noted("put", *tokens, queue=QUEUE):
            await self.app.queues.put_many([Parcel(token=token) for token in tokens])

    async def _enqueue(self) -> None:
        (count,) = self.lots.choices([1, CROWD], [95, 5])
        tasks = {self._new_id("s"): self.lots.randint(0, 9) for _ in range(count)}
        async with self._noted("enqueue", *tasks):
            places = await self.app.semaphores.get(SEMAPHORE)
            await places.enqueue_many(tasks)

    # Ids and notes.

    def _new_id(self, kind: str) -> str:
        self.count += 1
        return f"{kind}-{self.name}-{self.count}"

    def _remember(self, id: str) -> None:
        self.ids.append(id)
        if len(self.ids) > KEPT:
            self.guids.pop(self.ids.pop(0), None)

    def _old_id(self) -> str:
        if not self.ids:
            self.ids.append(self._new_id("a"))
        return self.lots.choice(self.ids)

    @asynccontextmanager
    async def _noted(self, kind: str, *ids: str, **facts: object) -> AsyncIterator[Callable[[Any], None]]:
        """Around one call: noted before it is made, and with its answer afterwards."""
        self.count += 1
        name = f"{self.name}-{self.count}"
        found: dict[str, Any] = {}

        def answer(scheduled: Any) -> None:
            found.update(guid=scheduled.guid, changed=scheduled.changed)
            self.guids[scheduled.id] = scheduled.guid

        self.notes.write(kind="call", op=name, what=kind, ids=ids, at=time.time(), **facts)
        reply = "ok"
        error: Exception | None = None
        try:
            yield answer
        except OutcomeUnknown as unknown:
            reply, error = "unknown", unknown
        except DatabaseError as failed:
            reply, error = "failed", failed
        except MatrixSchedError as refused:
            reply, error = "refused", refused
        except Exception as surprise:
            reply, error = "unknown", surprise
            self.notes.write(kind="surprise", op=name, at=time.time(), why="".join(format_exception(surprise)))
        finally:
            why = "" if error is None else f"{type(error).__name__}: {error}"
            written = len(ids) if kind in ("schedule", "schedule_many") else 0
            self.notes.write(kind=reply, op=name, at=time.time(), count=written, why=why, **found)
        if reply in ("unknown", "failed"):
            await anyio.sleep(0.2)
            if kind == "cancel" and ids[0].startswith("t-"):
                raise _Unanswered


class _Unanswered(Exception):
    """Nobody knows whether it was done."""


async def live(app: App, notes: Notes, writer: str, seed: str, per_s: float) -> None:
    stopping = anyio.Event()
    while True:
        try:
            await app.open()
            break
        except DatabaseError:
            await anyio.sleep(0.2)
    notes.write(kind="client", writer=writer, pid=os.getpid(), at=time.time())
    async with anyio.create_task_group() as group:
        for number in range(HANDS):
            hand = Hand(app, notes, f"{writer}-{number}", random.Random(f"{seed}:{writer}:{number}"))
            group.start_soon(hand.live, HANDS / per_s, stopping)
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                break
        stopping.set()
    await app.close()


def main() -> None:
    writer = os.environ["CHAOS_WRITER"]
    app = open_app(os.environ["CHAOS_DATABASE"], writer)
    notes = Notes(Path(os.environ["CHAOS_CALLS"]))
    anyio.run(live, app, notes, writer, os.environ["CHAOS_SEED"], float(os.environ["CHAOS_RATE"]))


if __name__ == "__main__":
    main()
