"""What a PostgreSQL server and an installation on it are like, asked over a connection of its own.

Everything is asked inside transactions, one of them at a time: a pooler may hand out another session of the server for
each. What our role may not see is left out, and said to be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from matrixsched.clock import Clock
from matrixsched.store.catalogue import catalogue_of
from matrixsched.store.facts import (
    ClockReading,
    Connections,
    LockWait,
    OpenTransaction,
    Pooler,
    PostgresFacts,
    SchemaFacts,
    Setting,
    TableFacts,
)
from matrixsched.store.statements import load, namespace
from matrixsched.store.transition import Row

QUESTION_TIMEOUT_S = 10.0
CLOCK_QUESTIONS = 3
"""The quickest answer tells most."""
LOCK_TIMEOUT_S = 1.0
POOLER_LOOKS = 5


class Inspection:
    def __init__(
        self,
        connect: Callable[..., Awaitable[asyncpg.Connection]],
        installation: str,
        *,
        how: dict[str, Any],
        clock: Clock,
    ) -> None:
        """`clock` is this machine's, to compare the database's with."""
        self._connect = connect
        self._installation = installation
        # Nothing is prepared by name: that would fail behind some poolers.
        self._how = how | {"statement_cache_size": 0, "command_timeout": QUESTION_TIMEOUT_S}
        self._clock = clock
        self._statements = load("postgresql", installation)
        self._namespace = namespace("postgresql", installation).removesuffix(".")

    async def facts(self, *, is_preparing: bool, is_listening: bool) -> PostgresFacts:
        async with self._connection() as connection:
            server = await self._server(connection)
            pooler = None
            if server["pid"] != connection.get_server_pid():
                # Who greeted us under one number and answers under another is not the server.
                pooler = Pooler(await self._is_shared(connection))
            clock = await self._clock_reading(connection)
            async with self._looking(connection):
                rows = await self._ask(connection, "namespace")
                can_use_schema = bool(rows) and rows[0]["is_usable"]
                tables = [TableFacts(**dict(row)) for row in await self._ask(connection, "tables")]
                exists = any(table.name == "installation" for table in tables)
                return PostgresFacts(
                    version=int(server["version"]),
                    version_text=server["version_text"],
                    role=server["role"],
                    database=server["database"],
                    namespace=self._namespace,
                    settings={
                        row["name"]: Setting(row["value"], row["origin"])
                        for row in await self._ask(connection, "settings")
                    },
                    is_standby=server["is_standby"],
                    clock=clock,
                    pooler=pooler,
                    is_preparing=is_preparing,
                    is_listening=is_listening,
                    connections=Connections(**dict((await self._ask(connection, "connections"))[0])),
                    transactions=await self._transactions(connection),
                    lock_waits=[_lock_wait_of(row) for row in await self._ask(connection, "lock_waits")],
                    tables=tables,
                    can_use_schema=can_use_schema,
                    hidden_sessions=(await self._ask(connection, "hidden"))[0]["sessions"],
                    schema=await self._schema(connection, exists=exists, readable=can_use_schema),
                )

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await self._connect(**self._how)
        try:
            yield connection
        finally:
            connection.terminate()

    @asynccontextmanager
    async def _looking(self, connection: asyncpg.Connection) -> AsyncIterator[None]:
        """A transaction in which time limits that are too short for our statements do not end these questions, and in
        which definitions are told in the same words whatever a session's settings are."""
        async with connection.transaction(isolation="read_committed", readonly=True):
            await connection.execute(
                "set local statement_timeout = 0; set local search_path = pg_catalog; set local timezone = 'UTC'; "
                "set local datestyle = 'ISO'; set local intervalstyle = 'postgres'"
            )
            yield

    async def _ask(self, connection: asyncpg.Connection, name: str) -> Sequence[Row]:
        statement = self._statements[f"inspect.{name}"]
        values = {"namespace": self._namespace}
        rows: Sequence[Row] = await connection.fetch(
            statement.positional, *[values[parameter] for parameter in statement.parameters]
        )
        return rows

    async def _server(self, connection: asyncpg.Connection) -> Row:
        async with self._looking(connection):
            return (await self._ask(connection, "server"))[0]

    async def _is_shared(self, first: asyncpg.Connection) -> bool:
        """Whether sessions of ours are served by the same one of the server, or one of ours by several."""
        async with self._connection() as second:
            ours: dict[int, int] = {}
            for _ in range(POOLER_LOOKS):
                for number, connection in enumerate((first, second)):
                    theirs = (await self._server(connection))["pid"]
                    if ours.setdefault(number, theirs) != theirs or ours.get(1 - number) == theirs:
                        return True
        return False

    async def _clock_reading(self, connection: asyncpg.Connection) -> ClockReading:
        async with self._looking(connection):
            readings = []
            for _ in range(CLOCK_QUESTIONS):
                asked_at = self._clock.now()
                (row,) = await self._ask(connection, "clock")
                readings.append(ClockReading(asked_at, row["now"], self._clock.now()))
        return min(readings, key=lambda reading: reading.round_trip)

    async def _transactions(self, connection: asyncpg.Connection) -> list[OpenTransaction]:
        sessions = [
            OpenTransaction(
                kind="session",
                name=str(row["pid"]),
                who=_who(row),
                state=row["state"],
                age=row["age"],
                xmin_age=row["xmin_age"],
            )
            for row in await self._ask(connection, "sessions")
        ]
        prepared = [
            OpenTransaction(
                kind="prepared transaction",
                name=row["gid"],
                who=row["owner"],
                state="prepared",
                age=row["age"],
                xmin_age=row["xmin_age"],
            )
            for row in await self._ask(connection, "prepared")
        ]
        slots = [
            OpenTransaction(
                kind="replication slot",
                name=row["slot_name"],
                who="a replica",
                state="active" if row["active"] else "inactive",
                age=None,
                xmin_age=row["xmin_age"],
            )
            for row in await self._ask(connection, "slots")
        ]
        return [*sessions, *prepared, *slots]

    async def _schema(self, connection: asyncpg.Connection, *, exists: bool, readable: bool) -> SchemaFacts:
        """Asked last, for it waits for whoever alters a table."""
        await connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT_S:g}s'")
        try:
            async with connection.transaction():
                found = catalogue_of("postgresql", self._installation, await self._ask(connection, "catalogue"))
                migrations = await self._ask_if_allowed(connection, "migrations") if readable else ()
                version = await self._ask_if_allowed(connection, "version") if readable else ()
                form = await self._ask_if_allowed(connection, "form") if readable else ()
        except asyncpg.LockNotAvailableError:
            return SchemaFacts(exists=exists, is_locked=True)
        return SchemaFacts(
            exists=exists,
            catalogue=found,
            checksums={row["number"]: row["checksum"] for row in migrations},
            version=version[0]["schema_version"] if version else None,
            oldest_library=version[0]["oldest_library"] if version else None,
            is_distributed=bool(form and form[0]["distributed"]),
        )

    async def _ask_if_allowed(self, connection: asyncpg.Connection, name: str) -> Sequence[Row]:
        """Nothing where the table is not there or not for us to read."""
        try:
            async with connection.transaction():
                return await self._ask(connection, name)
        except (asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
            return ()


def _who(row: Row) -> str:
    """The role, and the program if it said its name."""
    return ", ".join(word for word in (row["role"], row["application_name"]) if word)


def _lock_wait_of(row: Row) -> LockWait:
    return LockWait(
        pid=row["pid"],
        who=_who(row),
        tables=row["tables"] or (),
        mode=row["mode"],
        waited=row["waited"],
        blocked_by=row["blocked_by"],
        blockers=row["blockers"] or "nobody any more",
    )
