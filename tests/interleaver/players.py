"""A session with its transition, taken step by step: look, ask, commit.

`look` takes the snapshot of a statement and stops before its first row lock, where the statement has a pause point;
`ask` carries it out, and its transaction stays open; `commit` ends it. A step that waits for another session stays
under way. A statement is really held at its pause point only if another session goes on before it does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID

import asyncpg

from matrixsched.clock import ManualClock
from matrixsched.errors import MatrixSchedError
from matrixsched.store.statements import Statement, statement
from matrixsched.store.transition import Ask, Conversation, Row, Transaction, Transition

ANSWER_S = 0.001
"""How long a statement usually takes at most: before that it is not asked whether it waits."""
DEADLINE_S = 20.0
CONFLICTS_MAX = 5
FENCED = ("move", "claim")
"""Statements that write for the holder of the shard only."""

_PAUSE_POINT = re.compile(r"/\* pause point: \w+ \*/")
_TABLE = re.compile(r"\bmatrixsched\.(\w+)")
_WRITTEN = re.compile(r"\b(?:insert into|update|delete from)\s+matrixsched\.(\w+)")
_ROW_LOCK = re.compile(r"\bfor (?:no key update|update|key share|share)\b")
_CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


class Stuck(AssertionError):
    """Sessions wait for each other, or for nothing, and go on waiting."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a session does next, and which tables that is about."""

    kind: str
    name: str
    reads: frozenset[str] = frozenset()
    locks: frozenset[str] = frozenset()
    """Tables in which rows are locked or written."""
    publishes: frozenset[str] = frozenset()
    """Tables of which others see something new: rows that were written, or are no longer locked."""

    def commutes_with(self, other: Step) -> bool:
        """Whether it makes no difference which of the two comes first. What is not committed is seen by nobody."""
        return not (
            self.locks & other.locks
            or self.publishes & (other.reads | other.locks)
            or other.publishes & (self.reads | self.locks)
        )


@dataclass(frozen=True, slots=True)
class Tables:
    """What a statement is about."""

    touched: frozenset[str]
    written: frozenset[str]
    locked: frozenset[str]
    """Those it writes, or all if it locks rows without writing them."""


@cache
def tables_of(text: str) -> Tables:
    touched, written = frozenset(_TABLE.findall(text)), frozenset(_WRITTEN.findall(text))
    return Tables(touched, written, touched if _ROW_LOCK.search(text) else written)


@cache
def paused_by(original: Statement, key: int) -> Statement:
    """The statement, waiting at its pause point while anybody holds the advisory lock `key` exclusively."""
    wait = (
        f"and (select case when cast(pg_advisory_lock_shared({key}) as text) is not null "
        f"then pg_advisory_unlock_shared({key}) end)"
    )
    return statement("postgresql", "default", original.name, _PAUSE_POINT.sub(wait, original.text))


def has_pause_point(one: Statement) -> bool:
    return _PAUSE_POINT.search(one.text) is not None


@dataclass(slots=True)
class Seat:
    """A connection to play on, with the key of its pause points."""

    connection: asyncpg.Connection
    key: int
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        self.pid = self.connection.get_server_pid()


@dataclass(slots=True)
class Player:
    """A transition under way on a seat."""

    name: str
    seat: Seat
    transition: Transition[Any]
    statements: Mapping[str, Statement]
    watch: Watch
    clock: ManualClock
    """Of the database: what it says when a statement is sent is the time of that statement."""
    conversation: Conversation[Any] = field(init=False)
    next_ask: Ask | None = None
    """None: nothing but to commit."""
    looked: bool = False
    """Whether its snapshot is to be older than what others do now."""
    gated: bool = False
    """Whether its pause point is shut."""
    sent: asyncio.Task[Sequence[Row]] | None = None
    paused: bool = False
    waits: bool = False
    in_transaction: bool = False
    touched: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)
    """Tables, in the transaction that is open."""
    fences: list[tuple[int, UUID]] = field(default_factory=list)
    """Shards in which rows were moved or claimed in the transaction that is open, and by whose right."""
    done: bool = False
    answer: Any = None
    conflicts: int = 0
    waited: int = 0
    waited_for: set[int] = field(default_factory=set)
    """The sessions, by pid."""

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.conversation = self.transition.begin()
        self.next_ask = None
        self._converse(lambda: next(self.conversation))

    def _converse(self, go_on: Callable[[], Ask]) -> None:
        """Let it say what it asks next, or what it answers."""
        try:
            self.next_ask = go_on()
        except StopIteration as end:
            self.next_ask, self.answer = None, end.value
        except MatrixSchedError as error:
            self.next_ask, self.answer = None, error

    @property
    def can_go_on(self) -> bool:
        return not self.done and not self.waits

    @property
    def _text(self) -> Statement:
        assert self.next_ask is not None
        return self.statements[self.next_ask.statement.name]

    @property
    def _commits_next(self) -> bool:
        is_one = isinstance(self.transition, Transaction)
        return self.next_ask is None or (self.in_transaction and not is_one)

    @property
    def next_step(self) -> Step:
        if self.sent is None and self._commits_next:
            return Step("commit", "commit", publishes=frozenset(self.locked))
        text = self._text
        tables = tables_of(text.text)
        if not self.looked and has_pause_point(text):
            return Step("look", text.name, reads=tables.touched)
        reads = frozenset() if self.looked else tables.touched
        return Step("ask", text.name, reads=reads, locks=tables.locked)

    # What it does.

    async def step(self) -> None:
        step = self.next_step
        if step.kind == "commit":
            await self._end("rollback" if isinstance(self.answer, Exception) else "commit")
        elif step.kind == "look":
            self.looked = True
        elif self.sent is None:
            await self._send()
            await self.settle()
        else:
            await self._resume()
            await self.settle()

    async def run_through(self) -> None:
        """To the end, alone: nobody else plays now."""
        if isinstance(self.transition, Transaction):
            while not self.done:
                await self.step()
            return
        while self.next_ask is not None:
            await self._send(begins=False)
            await self.settle()
        self.done = True

    async def hold(self) -> None:
        """Others go on now: if it has looked, its snapshot must be older than what they do."""
        if self.looked and self.sent is None:
            await self.watch.shut(self.seat.key)
            self.gated = True
            await self._send()
            await self.settle()

    async def _send(self, *, begins: bool = True) -> None:
        assert self.next_ask is not None
        if begins and not self.in_transaction:
            await self.seat.connection.execute("begin")
            self.in_transaction = True
        text = self._text
        tables = tables_of(text.text)
        self.touched |= tables.touched
        self.written |= tables.written
        self.locked |= tables.locked
        if has_pause_point(text):
            text = paused_by(text, self.seat.key)
        # How long anything may take is for the schedule to say.
        given = {**self.next_ask.parameters, "now": self.clock.now(), "lock_timeout": None}
        parameters = [given[name] for name in text.parameters]
        self.sent = asyncio.ensure_future(self.seat.connection.fetch(text.positional, *parameters))

    async def _resume(self) -> None:
        self.paused = False
        await self._open()

    async def _open(self) -> None:
        if self.gated:
            await self.watch.open(self.seat.key)
            self.gated = False

    async def settle(self) -> None:
        """Return once its statement is answered, is held at its pause point, or waits for another session."""
        if self.sent is None or self.paused:
            return
        async with asyncio.timeout(DEADLINE_S):
            while not await self._is_answered():
                blockers = await self.watch.blockers(self.seat.pid)
                if self.watch.gate_pid in blockers:
                    self.paused, self.waits = True, False
                    return
                if (others := blockers & self.watch.pids) and not self.sent.done():
                    self.waited += not self.waits
                    self.waited_for |= others
                    self.waits = True
                    return
        self.waits = False
        await self._note_answer()

    async def _is_answered(self) -> bool:
        assert self.sent is not None
        await asyncio.wait([self.sent], timeout=ANSWER_S)
        return self.sent.done()

    async def _note_answer(self) -> None:
        assert self.sent is not None
        sent, self.sent, self.looked = self.sent, None, False
        await self._open()  # it may have ended without coming to its pause point
        try:
            rows = sent.result()
        except _CONFLICTS:
            self.conflicts += 1
            if self.conflicts > CONFLICTS_MAX:
                raise Stuck(f"{self.transition.name} was rolled back {self.conflicts} times") from None
            await self._end("rollback")
            self._begin()
        except asyncpg.PostgresError as error:
            self.next_ask, self.answer = None, error
        else:
            self._note_fence(rows)
            self._converse(lambda: self.conversation.send(rows))

    def _note_fence(self, rows: Sequence[Row]) -> None:
        assert self.next_ask is not None
        # Whoever takes the shard by the way has it locked until the commit, which nobody else sees before.
        if self.next_ask.statement.name in FENCED and rows[0]["seen"] and not rows[0].get("took_shard"):
            parameters: Mapping[str, Any] = self.next_ask.parameters
            self.fences.append((parameters["shard_id"], parameters["sync_guid"]))

    async def _end(self, how: str) -> None:
        if self.in_transaction:
            await self.seat.connection.execute(how)
        self.in_transaction = False
        self.locked.clear()
        self.fences.clear()
        self.done = how == "commit" and self.next_ask is None or isinstance(self.answer, Exception)

    async def abandon(self) -> None:
        """Take back what is not committed; what is under way comes to its end first."""
        await self._open()
        if self.sent is not None:
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.gather(self.sent, return_exceptions=True)
        if self.seat.connection.is_in_transaction():
            await self.seat.connection.execute("rollback")


@dataclass(slots=True)
class Watch:
    """Who waits for whom; and the key to the pause points."""

    gate: asyncpg.Connection
    watcher: asyncpg.Connection
    pids: set[int] = field(default_factory=set)
    """Of the sessions that play."""
    gate_pid: int = field(init=False)

    def __post_init__(self) -> None:
        self.gate_pid = self.gate.get_server_pid()

    async def blockers(self, pid: int) -> set[int]:
        return set(await self.watcher.fetchval("select pg_blocking_pids($1)", pid))

    async def holder(self, shard: int) -> UUID:
        """Who took the shard last."""
        guid: UUID = await self.watcher.fetchval(
            "select last_lock_guid from matrixsched.shard_locks where shard_id = $1", shard
        )
        return guid

    async def shut(self, key: int) -> None:
        await self.gate.fetchval("select pg_advisory_lock($1)", key)

    async def open(self, key: int) -> None:
        await self.gate.fetchval("select pg_advisory_unlock($1)", key)


async def settle_all(players: Iterable[Player]) -> bool:
    """Let those that waited go on as far as they can now; whether any did."""
    went_on = False
    for player in players:
        if player.waits:
            await player.settle()
            went_on = went_on or not player.waits
    return went_on


async def abandon_all(players: Iterable[Player]) -> None:
    """Those first whom others may wait for."""
    for player in sorted(players, key=lambda player: player.sent is not None):
        await player.abandon()


async def wait_for_conflict(players: Iterable[Player]) -> None:
    """All wait for each other: PostgreSQL ends one of them soon."""
    waiting = [player.sent for player in players if player.sent is not None]
    await asyncio.wait(waiting, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    if not any(sent.done() for sent in waiting):
        raise Stuck("they wait for each other forever")
