"""Statements of real sessions on one PostgreSQL database, held in a chosen order.

    held = await world.paused(world.do.claim(...))      # its snapshot is taken, its row locks are not
    await world.run(world.do.cancel(...))               # something else commits meanwhile
    await held.resume()
    claimed = await held.answer()

A statement can be held at its pause point: the comment of that name is replaced by a predicate that waits for an
advisory lock. The predicate depends on no row, so that PostgreSQL evaluates it before it locks the first one. Or
its transaction is kept open, as a caller's may be. Whether a statement waits is asked of the server.

A cure is shown to matter by taking it out: a `Mutant` replaces a piece of a statement, a `Ddl` changes the tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Generic, TypeVar, cast
from uuid import UUID, uuid4

import asyncpg
import pytest

from matrixsched.clock import ManualClock
from matrixsched.rules.action import UNGATED, Attempt, Outcome, State, Terms
from matrixsched.rules.outcome import Verdict
from matrixsched.store.postgresql.distributed.transitions import DistributedTransitions
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.statements import Statement, load, load_distributed, statement
from matrixsched.store.transition import Ask, Conversation, Row, Transaction, Transition
from matrixsched.store.values import Change, Claimed, Ended, Holding, NewAction, Taking

T = TypeVar("T")

DEADLINE_S = 10.0
POLL_EVERY_S = 0.002
HANDLER = "greet"
LEASE = timedelta(seconds=10)
"""Of shards and of attempts."""

_PAUSE_POINT = re.compile(r"/\* pause point: \w+ \*/")
_NOW = statement("postgresql", "default", "now", "{now}").text

BLOCKED = """
select exists (select from unnest(pg_blocking_pids($1)) as blocker (pid)
                 join pg_stat_activity as a using (pid)
                where a.backend_type = 'client backend' and a.datname = current_database())
"""


class StatementWaits(AssertionError):
    """A statement that should have gone on waits for another session."""


class StatementGoesOn(AssertionError):
    """A statement that should have waited has ended."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A statement with one piece of its text replaced; the piece is written as in the file, on one line."""

    statement: str
    old: str
    new: str

    def of(self, original: Statement) -> Statement:
        # However the file breaks its lines, a piece is found; and it is the only one of its kind.
        words = [re.escape(word) for word in self.old.replace("{now}", _NOW).split()]
        piece = re.compile(r"\s+".join(words))
        found = piece.findall(original.text)
        assert len(found) == 1, f"{original.name} holds {self.old!r} {len(found)} times"
        text = piece.sub(lambda _: self.new, original.text)
        return statement("postgresql", "default", original.name, text)


@dataclass(frozen=True, slots=True)
class Ddl:
    """A change to the tables."""

    text: str


Taken = Mutant | Ddl
"""A cure taken out."""


def held_at_pause_point(original: Statement, key: int) -> Statement:
    """The statement, waiting at its pause point until nobody holds the advisory lock `key` exclusively."""
    assert _PAUSE_POINT.search(original.text), f"{original.name} has no pause point"
    wait = f"and (select pg_advisory_xact_lock_shared({key})) is not null"
    return statement("postgresql", "default", original.name, _PAUSE_POINT.sub(wait, original.text))


async def fetch(connection: asyncpg.Connection, ask: Ask, text: Statement) -> Sequence[Row]:
    rows: Sequence[Row] = await connection.fetch(text.positional, *[ask.parameters[name] for name in text.parameters])
    return rows


@dataclass(slots=True)
class UnderWay(Generic[T]):
    """A transition that was sent to the server."""

    world: World
    pid: int
    task: asyncio.Task[T]
    key: int | None = None

    async def waits(self) -> None:
        """Return once it waits for another session; StatementGoesOn if it ends instead."""
        async with asyncio.timeout(DEADLINE_S):
            while not await self.world.is_blocked(self.pid):
                if self.task.done():
                    raise StatementGoesOn(f"it has ended: {self.task.exception() or self.task.result()}")
                await asyncio.sleep(POLL_EVERY_S)

    async def resume(self) -> None:
        """Let it pass its pause point."""
        assert self.key is not None, "it is not held at a pause point"
        await self.world.gate.execute("select pg_advisory_unlock($1)", self.key)

    async def answer(self) -> T:
        """What it answers; StatementWaits if it waits for another session first."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.task.done():
                await asyncio.wait([self.task], timeout=POLL_EVERY_S)
                if not self.task.done() and await self.world.is_blocked(self.pid):
                    raise StatementWaits("it waits for another session")
        return self.task.result()

    async def outcome(self) -> T:
        """What it answers in the end, waiting for others as long as it has to."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.task


@dataclass(slots=True)
class Session:
    """One connection; its statements commit one by one, or in a transaction that `begin` opens."""

    world: World
    connection: asyncpg.Connection

    @property
    def pid(self) -> int:
        pid: int = self.connection.get_server_pid()
        return pid

    async def begin(self, how: str = "begin") -> None:
        await self.connection.execute(how)

    async def commit(self) -> None:
        await self.connection.execute("commit")

    async def rollback(self) -> None:
        await self.connection.execute("rollback")

    def start(self, transition: Transition[T], *, pause: int | None = None) -> UnderWay[T]:
        task = asyncio.ensure_future(self._converse(transition, pause))
        started = UnderWay(self.world, self.pid, task, pause)
        self.world.under_way.append(started)
        return started

    async def run(self, transition: Transition[T]) -> T:
        """Carry it out; StatementWaits if it would have to wait."""
        return await self.start(transition).answer()

    async def _converse(self, transition: Transition[T], pause: int | None) -> T:
        if isinstance(transition, Transaction) and not self.connection.is_in_transaction():
            async with self.connection.transaction():
                return await self._statements(transition, pause)
        return await self._statements(transition, pause)

    async def _statements(self, transition: Transition[T], pause: int | None) -> T:
        conversation = transition.begin()
        is_alone = not isinstance(transition, Transaction) and not self.world.is_distributed
        try:
            ask = next(conversation)
            while True:
                text = self.world.statements[ask.statement.name]
                # Of several statements, those are held that have a pause point.
                if pause is not None and (is_alone or _PAUSE_POINT.search(text.text)):
                    text = held_at_pause_point(text, pause)
                is_alone = False
                ask = conversation.send(await fetch(self.connection, ask, text))
        except StopIteration as end:
            answer: T = end.value
            return answer


def _file(ask: Ask | None) -> str:
    return "" if ask is None else ask.statement.name.partition(".")[0]


@dataclass(slots=True)
class Steps(Generic[T]):
    """A transaction that is taken one statement after another; the last step commits it."""

    session: Session
    conversation: Conversation[T]
    ask: Ask | None
    """What is asked next; None: nothing but to commit."""
    done: bool = False
    _answer: T | None = None

    async def step(self) -> None:
        """Carry out the next statement; StatementWaits if it would have to wait."""
        if self.ask is None:
            await self.session.commit()
            self.session.world.idle.append(self.session)
            self.done = True
            return
        text = self.session.world.statements[self.ask.statement.name]
        task = asyncio.ensure_future(fetch(self.session.connection, self.ask, text))
        started = UnderWay(self.session.world, self.session.pid, task)
        self.session.world.under_way.append(started)
        rows = await started.answer()
        try:
            self.ask = self.conversation.send(rows)
        except StopIteration as end:
            self.ask, self._answer = None, end.value

    async def past(self, name: str) -> None:
        """Go on until the statement of that name was carried out, or all that the file of that name holds."""
        while (asked := self.ask) is not None:
            await self.step()
            if asked.statement.name == name or (_file(asked) == name != _file(self.ask)):
                return
        raise AssertionError(f"it asks no {name}")

    async def finish(self) -> T:
        """Go on to the end; what it answers."""
        while not self.done:
            await self.step()
        return cast("T", self._answer)


@dataclass(slots=True)
class World:
    """One installation of one shard, sessions on it, and a clock that stands still until it is advanced."""

    dsn: str
    gate: asyncpg.Connection
    """Holds the pause points shut."""
    watcher: asyncpg.Connection
    stack: AsyncExitStack
    is_distributed: bool = False
    clock: ManualClock = field(default_factory=ManualClock)
    statements: dict[str, Statement] = field(init=False)
    keys: Any = field(default_factory=lambda: count(1))
    under_way: list[UnderWay[Any]] = field(default_factory=list)
    idle: list[Session] = field(default_factory=list)
    altered: bool = False
    """Whether the tables are not those of the schema any more."""
    wrong: dict[str, int] = field(default_factory=dict)
    """The live actions that are expected to have another number of rows than one, with that number."""

    @property
    def requests(self) -> str:
        """The table of requests about actions."""
        return "action_requests" if self.is_distributed else "requests"

    def __post_init__(self) -> None:
        found = load_distributed("default") if self.is_distributed else load("postgresql", "default")
        self.statements = dict(found)

    @property
    def do(self) -> PostgresTransitions:
        form = DistributedTransitions if self.is_distributed else PostgresTransitions
        return form("default", clock=self.clock)

    # Who does it, and how far.

    async def take_out(self, cures: Sequence[Taken]) -> None:
        for cure in cures:
            match cure:
                case Mutant(name):
                    self.statements[name] = cure.of(self.statements[name])
                case Ddl(text):
                    self.altered = True
                    await self.watcher.execute(text)

    async def session(self) -> Session:
        connection = await asyncpg.connect(self.dsn, timeout=DEADLINE_S)
        self.stack.callback(connection.terminate)
        # By default a deadlock is looked for only after a second.
        await connection.execute("set deadlock_timeout = '50ms'")
        return Session(self, connection)

    async def run(self, transition: Transition[T]) -> T:
        """Carry it out on a session of its own; StatementWaits if it would have to wait."""
        session = self.idle.pop() if self.idle else await self.session()
        answer = await session.run(transition)
        self.idle.append(session)
        return answer

    async def open(self, transition: Transition[T]) -> tuple[Session, T]:
        """Carry it out in a transaction that stays open."""
        session = await self.session()
        await session.begin()
        return session, await session.run(transition)

    async def start(self, transition: Transition[T]) -> UnderWay[T]:
        """Send it on a session of its own."""
        return (await self.session()).start(transition)

    async def paused(self, transition: Transition[T]) -> UnderWay[T]:
        """Send it, and return once it is held between its snapshot and its first row lock."""
        key = next(self.keys)
        await self.gate.execute("select pg_advisory_lock($1)", key)
        held = (await self.session()).start(transition, pause=key)
        await held.waits()
        return held

    async def stepping(self, transition: Transaction[T], *, how: str = "begin") -> Steps[T]:
        """Begin a transaction on a session of its own, and ask nothing yet. Unless `how` says so, it may be idle."""
        session = self.idle.pop() if self.idle else await self.session()
        await session.begin(how)
        conversation = transition.begin()
        return Steps(session, conversation, next(conversation))

    async def is_blocked(self, pid: int) -> bool:
        """By a session of this database: autovacuum, which may hold a table for a moment, is nobody's doing."""
        blocked: bool = await self.watcher.fetchval(BLOCKED, pid)
        return blocked

    async def close(self) -> None:
        for one in self.under_way:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in self.under_way), return_exceptions=True)

    # What is done.

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def an_action(self, id: str = "a", *, at: datetime | None = None) -> NewAction:
        return an_action(at or self.now, id)

    def scheduling(
        self, *batch: NewAction, request: UUID | None = None, lock_timeout: timedelta | None = None
    ) -> Transition[list[Any]]:
        """Write actions in the order given."""
        return self.do.schedule(batch, request or uuid4(), replace=True, lock_timeout=lock_timeout, tell=False)

    async def schedule(self, *ids: str, at: datetime | None = None) -> list[NewAction]:
        batch = [self.an_action(id, at=at) for id in ids]
        await self.run(self.scheduling(*batch))
        return batch

    def cancelling(self, id: str) -> Transition[Any]:
        return self.do.cancel(Change(shard=0, id=id, guid=uuid4(), request_guid=uuid4(), expected_guid=None))

    def acquiring(self, guid: UUID, lanes: Sequence[str] = ()) -> Transition[Any]:
        return self.do.acquire_shard(sync_guid=guid, holder="test", lease=LEASE, lanes=lanes)

    async def acquire(self) -> UUID:
        """Take the shard, also from a holder that does not beat any more."""
        guid = uuid4()
        acquired = await self.run(self.acquiring(guid))
        assert acquired.shard == 0
        return guid

    async def release(self, guid: UUID) -> None:
        assert await self.run(self.do.release_shard(0, guid))

    def moving(self, guid: UUID, *, claim_limit: int = 100, taking: bool = False) -> Transition[Claimed]:
        return self.do.move(
            0,
            guid,
            handlers=[HANDLER],
            move_limit=100,
            claim_limit=claim_limit,
            attempt_lease=LEASE,
            taking=Taking("test", self.now + LEASE) if taking else None,
        )

    def claiming(self, guid: UUID, *, lane: str = UNGATED, limit: int = 100) -> Transition[Claimed]:
        return self.do.claim(0, guid, lane=lane, handlers=[HANDLER], limit=limit, attempt_lease=LEASE)

    async def take(self, guid: UUID | None = None) -> dict[str, Attempt]:
        """Claim all that is due and all that is new; attempts by id."""
        guid = guid or await self.acquire()
        claimed = [*(await self.run(self.claiming(guid))).attempts, *(await self.run(self.moving(guid))).attempts]
        return {attempt.claim.action_id: attempt for attempt in claimed}

    async def start_attempts(self, *ids: str) -> dict[str, Attempt]:
        """Schedule actions and claim them; the shard is free afterwards."""
        await self.schedule(*ids)
        guid = await self.acquire()
        attempts = await self.take(guid)
        await self.release(guid)
        assert set(attempts) == set(ids)
        return attempts

    def extending(self, *attempts: Attempt) -> Transition[Mapping[UUID, Any]]:
        held = [Holding(attempt.claim, timedelta(minutes=1)) for attempt in attempts]
        return self.do.extend(held, attempt_lease=LEASE)

    def recording(self, *attempts: Attempt, retry_in: timedelta | None = None) -> Transition[Mapping[UUID, Any]]:
        """Record success, or a failure that is tried again."""
        return self.do.record([Ended(one.claim, _verdict(one, retry_in)) for one in attempts], history_max=50)

    # What stands in the tables.

    async def rows(self, text: str, *parameters: object) -> list[asyncpg.Record]:
        found: list[asyncpg.Record] = await self.watcher.fetch(text, *parameters)
        return found

    async def processing(self, guid: UUID) -> asyncpg.Record | None:
        """The processing row of a version of an action."""
        found = await self.rows("select * from matrixsched.processing_queue where action_guid = $1", guid)
        assert len(found) <= 1
        return found[0] if found else None

    async def state(self, id: str) -> str | None:
        state: str | None = await self.watcher.fetchval(
            "select state from matrixsched.scheduled_actions where action_id = $1", id
        )
        return state

    async def live_without_exactly_one_row(self) -> dict[str, int]:
        """The one-live-row invariant: for every live action exactly one row with its id and guid in the two queues.

        Those that break it, with the number of their rows.
        """
        found = await self.rows(
            """
            select a.action_id, count(q.action_id) as rows
              from matrixsched.scheduled_actions a
              left join (select shard_id, action_id, action_guid from matrixsched.incoming_queue
                         union all
                         select shard_id, action_id, action_guid from matrixsched.processing_queue) q
                     using (shard_id, action_id, action_guid)
             where a.state = 'live'
             group by a.shard_id, a.action_id
            having count(q.action_id) <> 1
            """
        )
        return {row["action_id"]: row["rows"] for row in found}


def an_action(at: datetime, id: str = "a") -> NewAction:
    """A version of an action, with a guid of its own, in the only shard."""
    return NewAction(
        shard=0,
        id=id,
        guid=uuid4(),
        request_guid=None,
        handler=HANDLER,
        payload=b"null",
        terms=Terms(),
        lane=UNGATED,
        priority=0,
        template=None,
        zone=None,
        expires_at=None,
        at=at,
        delay=timedelta(0),
    )


def _verdict(attempt: Attempt, retry_in: timedelta | None) -> Verdict:
    return Verdict(
        outcome=Outcome.SUCCEEDED if retry_in is None else Outcome.FAILED,
        state=State.DONE if retry_in is None else State.LIVE,
        tick=attempt.tick,
        tick_at=attempt.tick_at,
        delay=retry_in,
    )


async def install(dsn: str, *, distributed: bool = False) -> None:
    store = PostgresStore(dsn, "default", connections=1)
    await store.open()
    await store.upgrade(shard_count=1, distributed=distributed)
    await store.close()


async def clear(connection: asyncpg.Connection) -> None:
    """Leave nothing of the case before: neither its sessions nor its rows."""
    await connection.execute(
        """
        select pg_terminate_backend(pid, 5000) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend';
        delete from matrixsched.scheduled_actions;
        delete from matrixsched.incoming_queue;
        delete from matrixsched.processing_queue;
        delete from matrixsched.requests;
        delete from matrixsched.attempt_history;
        delete from matrixsched.limits;
        delete from matrixsched.templates;
        delete from matrixsched.held_lanes;
        delete from matrixsched.quota_windows;
        delete from matrixsched.quota_grants;
        delete from matrixsched.semaphores;
        delete from matrixsched.semaphore_tasks;
        delete from matrixsched.semaphore_changes;
        delete from matrixsched.queue_tasks;
        delete from matrixsched.queue_dead_letters;
        delete from matrixsched.known_queues;
        delete from matrixsched.queue_settings;
        delete from matrixsched.queue_workers;
        update matrixsched.chores set held_by = null, position = '{}', done_at = null;
        delete from matrixsched.shard_locks;
        insert into matrixsched.shard_locks (shard_id) values (0)
        """
    )


@contextlib.asynccontextmanager
async def a_world(dsn: str, *, is_distributed: bool = False) -> AsyncIterator[World]:
    """An empty installation to interleave statements in; at the end its invariant is checked."""
    async with AsyncExitStack() as stack:
        watcher = await asyncpg.connect(dsn, timeout=DEADLINE_S)
        stack.push_async_callback(watcher.close)
        await clear(watcher)
        if is_distributed:
            await watcher.execute("delete from matrixsched.action_requests")
        sessions = await stack.enter_async_context(AsyncExitStack())
        gate = await asyncpg.connect(dsn, timeout=DEADLINE_S)
        sessions.callback(gate.terminate)
        world = World(dsn, gate, watcher, sessions, is_distributed)
        try:
            yield world
        finally:
            await world.close()
        await sessions.aclose()
        assert await world.live_without_exactly_one_row() == world.wrong


def cured(**taken_out: Sequence[Taken]) -> pytest.MarkDecorator:
    """Run a case with its cure in place, and once with each of these ways to take it out: then it must go wrong.

    The case gets it as `taken_out`, which is empty, and so false, when the cure is in place.
    """
    of_a_text = pytest.mark.undistributed("what is taken out of a statement is written as in sql/postgresql/")
    ways = [pytest.param(out, id=name.replace("_", " "), marks=of_a_text) for name, out in taken_out.items()]
    return pytest.mark.parametrize("taken_out", [pytest.param((), id="cure in place"), *ways])
