"""A connection to PostgreSQL: how its session plans, how long it keeps to its plans, and how a transaction of our own
begins and ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import asyncpg

from matrixsched.store.transition import Ask, Row

PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
"""How a session plans that prepares its statements: each once, for whatever it will be asked. Planned anew for each
batch, most of them take longer to plan than to carry out."""
PLANNING_DISTRIBUTED = {name: value for name, value in PLANNING.items() if name != "plan_cache_mode"}
"""In distributed form: an engine with several nodes (Citus) refuses a plan made before the parameters are known, unless
it sees that the statement is about one shard."""
PLAN_LIFETIME_S = 20.0
"""How long plans are kept: they suit the tables as they were. One made for a hundred rows reads them all, and would go
on so when a hundred thousand have come, until the next ANALYZE …"""
PLANS_OUTGROWN = 8
"""… or until so many times as many rows came at once."""
RENEWAL_TIMEOUT_S = 2.0
CONFLICTS_MAX = 5
"""How often what the database rolled back by itself is done again: a transaction, or a statement that stands alone."""
CONFLICT = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
ALTERING_MAX_S = 30 * 86_400.0
"""As good as no limit: to say none to asyncpg is to have that of all other statements."""
IDLE_MAX_S = 2
"""How long a transaction of our own may be idle between two of its statements before the server ends it. What it has
locked (shards, limits, users' rows) a process that is frozen inside of it, or cut off without a word, would else keep
for good. Longer than one that lives is held up; shorter than a single call waits for a row (5 s), and than leases (10
s). One for all, also for the row of a limit, before which the fleet stands still meanwhile: with less, a worker that is
only slow for a second would lose what it has claimed, and the others would gain no more than that second."""

# Of a connection that is lost, and of one to which the server said goodbye while nobody asked: confused from then on.
CONFUSED = (asyncpg.InterfaceError, asyncpg.InternalClientError)

_ISOLATION = "current_setting('transaction_isolation')"
# In one message, so in one round trip; for this transaction alone: behind a pooler the session is others', too.
BEGIN = f"begin isolation level read committed; set local idle_in_transaction_session_timeout = '{IDLE_MAX_S}s'"


class Connection(asyncpg.Connection):  # type: ignore[misc]
    is_read_committed = True
    """Whether a transaction is READ COMMITTED here, as our statements need it, without being told."""
    era = 0
    """Of the store, when it was opened: see PostgresStore."""
    is_in_use = False
    rest_after: Callable[[int], Awaitable[None]]
    """So many conflicts; the store's."""
    _planned: frozenset[str] = frozenset()
    """The transitions whose statements were carried out here since plans were made anew."""
    _plans_are_kept = False
    _planned_at = float("-inf")
    _planned_for = _most_rows = 1
    """How many rows a statement brought at most when the present plans were new, and since then."""

    def get_reset_query(self) -> str:
        # Nothing is to be reset for the next one of us, and the round trip would be as long as many a statement.
        return ""

    async def begin_session(self, now: float, *, prepares: bool, planning: Mapping[str, str]) -> None:
        """Say how to plan where statements are prepared, which is not behind a pooler: that would hand it on to others.
        For the same reason the isolation is not set but found out; where an operator chose another default, each
        transition says it with its BEGIN, at the price of two round trips."""
        asked = ", ".join([_ISOLATION, *(_setting(planning) if prepares else ())])
        self._plans_are_kept, self._planned_at = prepares, now
        self.is_read_committed = await self.fetchval(f"select {asked}") == "read committed"

    @asynccontextmanager
    async def own_transaction(self) -> AsyncIterator[None]:
        """A transaction of our own, READ COMMITTED, that does not outlive us for long if we are frozen in it."""
        try:
            await self.execute(BEGIN)
            yield
        except BaseException:
            with suppress(asyncpg.PostgresError, OSError, *CONFUSED):  # the first error tells what happened
                await self.execute("rollback")
            raise
        await self.execute("commit")

    async def alter(self, text: str) -> None:
        """Change tables, however long that takes: it may be an index of a hundred million rows."""
        await self.execute(text, timeout=ALTERING_MAX_S)

    def use(self, in_use: bool) -> None:
        self.is_in_use = in_use

    def has_planned(self, transition: str) -> bool:
        return transition in self._planned

    def note_planned(self, transition: str) -> None:
        self._planned |= {transition}

    async def ask(self, ask: Ask) -> Sequence[Row]:
        """Carry out a statement. One that stands alone and lost a conflict did nothing, and is carried out again by
        itself: those before it in the same conversation took effect, and their answers count."""
        statement = ask.statement
        parameters = [ask.parameters[name] for name in statement.parameters]
        conflicts = 0
        while True:
            try:
                rows: Sequence[Row] = await self.fetch(statement.positional, *parameters)
            except CONFLICT:
                conflicts += 1
                if self.is_in_transaction() or conflicts == CONFLICTS_MAX:
                    raise
                await self.rest_after(conflicts)
            else:
                self._most_rows = max(self._most_rows, len(rows))
                return rows

    async def renew_plans(self, now: float) -> None:
        """Let statements be planned anew where the present plans may not suit the tables."""
        is_old = now - self._planned_at > PLAN_LIFETIME_S
        if self._plans_are_kept and (is_old or self._most_rows > PLANS_OUTGROWN * self._planned_for):
            await self.execute("discard plans", timeout=RENEWAL_TIMEOUT_S)
            self._planned = frozenset()
            self._planned_for = self._most_rows = 1 if is_old else self._most_rows
            self._planned_at = now


def _setting(planning: Mapping[str, str]) -> list[str]:
    """What sets it; what the server does not know is left out."""
    return [
        f"case when current_setting('{name}', true) is not null then set_config('{name}', '{value}', false) end"
        for name, value in planning.items()
    ]


async def connect(*where: Any, **how: Any) -> asyncpg.Connection:
    """Connect, also if the caller is cancelled meanwhile: asyncpg would leave an error behind that nobody awaits."""
    with anyio.CancelScope(shield=True):
        return await asyncpg.connect(*where, **how)


def is_closed(connection: asyncpg.Connection) -> bool:
    """Of one that was lost while in use nothing can be asked: the pool has taken it back by then."""
    try:
        return bool(connection.is_closed())
    except CONFUSED:
        return True
