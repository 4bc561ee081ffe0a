"""The store on PostgreSQL: asyncpg connections; where statements are not prepared without session state, so that it
also works behind a pooler.

A server may take no more writes and still answer: a primary that became a standby. Connections to it would be used for
ever. So the first refusal ends everything that we have there, and whoever comes next connects anew.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import anyio
import asyncpg

from matrixsched.clock import Chance, Clock, SystemChance, SystemClock
from matrixsched.errors import (
    BadDatabaseUrl,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    FormMismatch,
    MatrixSchedError,
    NotOpen,
    OutcomeUnknown,
    SchemaMissing,
    UpgradeBlocked,
)
from matrixsched.rules.backoff import backoff_s
from matrixsched.rules.names import check_shard_count
from matrixsched.store.facts import PostgresFacts
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION, load_migrations, missing
from matrixsched.store.news import Hearing, News, tell
from matrixsched.store.postgresql.at_hand import AtHand
from matrixsched.store.postgresql.connection import (
    CONFLICT,
    CONFLICTS_MAX,
    CONFUSED,
    PLANNING,
    PLANNING_DISTRIBUTED,
    Connection,
    is_closed,
)
from matrixsched.store.postgresql.distributed.making import OLDEST_LIBRARY, distributing
from matrixsched.store.postgresql.forms import EitherForm
from matrixsched.store.postgresql.hosts import Hosts, addresses_of
from matrixsched.store.postgresql.inspecting import Inspection
from matrixsched.store.postgresql.reasons import reason
from matrixsched.store.postgresql.transitions import channel_of
from matrixsched.store.statements import TAKES_WRITES, Dialect, namespace
from matrixsched.store.transition import Composed, Transaction, Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Pool

T = TypeVar("T")

CONNECTIONS_DEFAULT = 8
SIBLING_CONNECTIONS = 4
CONNECT_TIMEOUT_S = 5.0
"""How long connecting may take, and disconnecting; whoever stops meanwhile may have to wait for it."""
ACQUIRE_TIMEOUT_S = 10.0
"""How long a transition may wait for a connection."""
STATEMENT_TIMEOUT_S = 30.0
INIT_RACES_MAX = 19
"""How often an upgrade is begun again because others create the same tables at this moment."""
UPGRADE_PATIENCE_S = 60.0
"""For how long an upgrade tries to get its locks."""
ALTERING_WAITS_S = 2.0
"""How long it waits each time for a table: whoever comes to that meanwhile waits behind it. Longer than PostgreSQL's
deadlock_timeout, a second, after which an autovacuum that is in the way is told to go."""
LISTENER_LOOKS_EVERY_S = 30.0
"""How often the listener, who hears nothing where nothing is written, asks whether it is still in the right place."""

_DEMOTED = (asyncpg.ReadOnlySQLTransactionError, asyncpg.TargetServerAttributeNotMatched)
"""What a server answers that takes no writes, and what we are told where none of several does."""
_UNTOLD = (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.InsufficientPrivilegeError)
"""Why the form of an installation cannot be told yet; whoever asks for something says it."""
_INIT_RACES = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateSchemaError,
    asyncpg.DuplicateTableError,
    asyncpg.InternalServerError,  # "tuple concurrently updated"
    *CONFLICT,
)


class PostgresStore:
    dialect: Dialect = "postgresql"

    def __init__(
        self,
        url: str,
        installation: str,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        connections: int = CONNECTIONS_DEFAULT,
        prepared_statements: bool = True,
        listen: bool = True,
    ) -> None:
        """`clock` replaces the database's own; for tests. Behind a pooler: prepared_statements=False, listen=False."""
        self._url = url
        self._hosts = Hosts(url)
        self._test_clock = clock
        self._clock: Clock = SystemClock()
        self._chance = chance or SystemChance()
        self._connections = connections
        self._prepared_statements = prepared_statements
        self._listen = listen
        self._pool: asyncpg.Pool | None = None
        self._at_hand = AtHand(self._clock)
        self._sessions = WeakSet[Connection]()
        self._listening: set[Connection] = set()
        self._era = 0
        """How often we have left a server that took no more writes."""
        self._waiting = self._served = 0
        self._waited_s = 0.0
        self.installation = installation
        self._transitions = EitherForm(installation, clock=clock)

    @property
    def _prefix(self) -> str:
        return namespace(self.dialect, self.installation)

    @property
    def transitions(self) -> Transitions:
        return self._transitions

    @property
    def description(self) -> str:
        parts = urlsplit(self._url)
        hosts = parts.netloc.rpartition("@")[2] or ",".join(
            one.host if one.port is None else f"{one.host}:{one.port}" for one in addresses_of(self._url)
        )
        hosts = hosts or "the local socket"
        return f"PostgreSQL at {hosts}, database {parts.path.lstrip('/') or 'by default'}"

    @property
    def pool(self) -> Pool:
        pool = self._pool
        size, idle = (0, 0) if pool is None else (pool.get_size(), pool.get_idle_size() + len(self._at_hand))
        return Pool(
            most=self._connections,
            open=size,
            in_use=size - idle,
            waiting=self._waiting,
            served=self._served,
            waited_s=self._waited_s,
        )

    def sibling(self) -> PostgresStore:
        return PostgresStore(
            self._url,
            self.installation,
            clock=self._test_clock,
            chance=self._chance,
            connections=SIBLING_CONNECTIONS,
            prepared_statements=self._prepared_statements,
            listen=False,
        )

    async def open(self) -> None:
        try:
            pool = await asyncpg.create_pool(
                self._url,
                min_size=0,  # a pool that has to keep some fills the log with traces while the database is away
                max_size=self._connections,
                command_timeout=STATEMENT_TIMEOUT_S,
                connect=self._hosts.connect,
                init=self._begin_session,
                **self._how(),
            )
        except Exception as error:
            raise self._connecting(error) from None
        try:
            self._transitions.forget()
            async with pool.acquire(timeout=ACQUIRE_TIMEOUT_S):
                pass  # its session has read the form
        except BaseException as error:
            pool.terminate()  # also when cancelled: nobody would close what is not ours yet
            if isinstance(error, Exception):
                raise self._connecting(error) from None
            raise
        self._pool = pool

    async def _begin_session(self, connection: Connection) -> None:
        connection.era, connection.rest_after = self._era, self._rest_after
        self._sessions.add(connection)
        await self._suit(connection)

    async def _suit(self, connection: Connection) -> None:
        """Let a session plan as suits the form of the installation; the first one reads it."""
        if self._transitions.is_distributed is None:
            with suppress(*_UNTOLD):
                await self._transitions.installation().converse_async(connection.ask)
        planning = PLANNING if self._transitions.is_distributed is False else PLANNING_DISTRIBUTED
        await connection.begin_session(self._clock.monotonic(), prepares=self._prepared_statements, planning=planning)

    def _how(self) -> dict[str, Any]:
        return {
            "connection_class": Connection,
            "timeout": CONNECT_TIMEOUT_S,
            "statement_cache_size": 256 if self._prepared_statements else 0,
            "max_cached_statement_lifetime": 0,  # see Connection.renew_plans
            "server_settings": {"application_name": "matrixsched"},
        }

    async def close(self) -> None:
        for connection in self._at_hand.clear():
            await self._release(connection)
        pool, self._pool = self._pool, None
        if pool is not None:
            with anyio.move_on_after(CONNECT_TIMEOUT_S, shield=True) as limit:
                await pool.close()
            if limit.cancelled_caught:
                pool.terminate()

    async def run(self, transition: Transition[T]) -> T:
        conflicts = 0
        while True:
            try:
                return await self._converse(transition)
            except CONFLICT as error:
                conflicts += 1
                if conflicts == CONFLICTS_MAX:
                    raise _lost(transition.name, error) from None
                await self._rest_after(conflicts)

    async def _rest_after(self, conflicts: int) -> None:
        await self._clock.sleep(backoff_s(conflicts, first=0.01, most=0.5, spread=self._chance.random()))

    async def _converse(self, transition: Transition[T]) -> T:
        connection = await self._connection(transition.name)
        era, broken = self._era, True
        stands_alone = connection.is_read_committed and not self._is_one_transaction(transition)
        try:
            if stands_alone:
                answer = await transition.converse_async(connection.ask)
            else:
                async with connection.own_transaction():
                    answer = await transition.converse_async(connection.ask)
            connection.note_planned(transition.name)
            broken = False
            return answer
        except CONFLICT as error:
            broken = False
            if stands_alone:  # each of its statements was tried so often
                raise _lost(transition.name, error) from None
            raise
        except Exception as error:
            # After a time limit the statement may still be under way: the connection is not to be handed on.
            broken = is_closed(connection) or isinstance(error, TimeoutError | asyncpg.InternalClientError)
            self._leave_if_demoted(error, era)
            raise self._failed(transition.name, error) from None
        finally:
            await self._put_back(connection, broken)

    def _is_one_transaction(self, transition: Transition[Any]) -> bool:
        return isinstance(transition, Transaction) or (
            isinstance(transition, Composed) and self._transitions.is_distributed is not False
        )

    async def _connection(self, transition: str = "") -> Connection:
        if self._pool is None:
            raise NotOpen("the store is not open")
        connection = self._at_hand.take(transition) or await self._acquired(self._pool)
        try:
            connection.use(True)
            await connection.renew_plans(self._clock.monotonic())
        except Exception as error:
            await self._put_back(connection, broken=True)
            raise self._connecting(error) from None
        except BaseException:
            await self._put_back(connection, broken=True)
            raise
        self._served += 1
        return connection

    async def _acquired(self, pool: asyncpg.Pool) -> Connection:
        asked_at, era = self._clock.monotonic(), self._era
        self._waiting += 1
        try:
            connection: Connection = await pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
            return connection
        except Exception as error:
            if isinstance(error, TimeoutError) and pool.get_size() >= self._connections:
                raise DatabaseBusy(f"all {self._connections} connections to {self.description} are in use") from None
            self._leave_if_demoted(error, era)
            raise self._connecting(error) from None
        finally:
            self._waiting -= 1
            self._waited_s += self._clock.monotonic() - asked_at

    async def _put_back(self, connection: asyncpg.Connection, broken: bool) -> None:
        if self._pool is None:
            connection.terminate()
            return
        # One that is closed is gone from the pool already; one in a transaction was left in the middle of it.
        broken = broken or is_closed(connection) or connection.is_in_transaction() or connection.era != self._era
        if broken:
            # Also after a cancellation: a statement may still be under way, nobody must be handed this connection.
            # If it was lost, the pool has taken it back already, and says so.
            with suppress(*CONFUSED):
                connection.terminate()
        else:
            connection.use(False)
        if broken or self._waiting:
            await self._release(connection)
        else:
            self._at_hand.put(connection)

    async def _release(self, connection: asyncpg.Connection) -> None:
        """Give it back to the pool, for others who wait, or for it to close."""
        if self._pool is not None:
            with anyio.move_on_after(1, shield=True):
                await self._pool.release(connection)

    def _leave_if_demoted(self, error: Exception, era: int) -> None:
        """End what we have with a server that takes no writes, the listener's session too; what is in use, when it is
        put back. Once for all who hear of it: they do not end what was opened anew since then."""
        if not isinstance(error, _DEMOTED) or era != self._era:
            return
        self._era += 1
        self._hosts.turn_away()
        self._at_hand.clear()
        for connection in (*self._sessions, *self._listening):
            if not connection.is_in_use:
                connection.terminate()

    def _connecting(self, error: Exception) -> MatrixSchedError:
        if isinstance(error, MatrixSchedError):
            return error
        if isinstance(error, ValueError | asyncpg.ClientConfigurationError) and not isinstance(error, OSError):
            return BadDatabaseUrl("asyncpg cannot read it")
        return DatabaseUnavailable(f"cannot connect to {self.description}: {reason(error)}")

    def _failed(self, name: str, error: Exception) -> Exception:
        """Which of the three classes an error belongs to: not done, done, unknown."""
        if isinstance(error, MatrixSchedError):
            return error
        if isinstance(error, asyncpg.UndefinedTableError | asyncpg.InvalidSchemaNameError):
            return SchemaMissing(self.installation)
        if isinstance(error, asyncpg.LockNotAvailableError):
            return DatabaseBusy(f"{name}: a row is locked by another transaction")
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError | asyncpg.InsufficientResourcesError):
            return DatabaseUnavailable(f"{name} was refused by {self.description}: {reason(error)}")
        if isinstance(error, _UNKNOWN):
            return OutcomeUnknown(f"{name}: the connection to {self.description} broke ({reason(error)})")
        if isinstance(error, asyncpg.PostgresError):
            return DatabaseError(f"{name} failed: {reason(error)}")
        return error

    async def inspect(self, clock: Clock, *, thorough: bool = False) -> PostgresFacts:
        inspection = Inspection(self._hosts.connect, self.installation, how=self._how(), clock=clock)
        try:
            return await inspection.facts(is_preparing=self._prepared_statements, is_listening=self._listen)
        except Exception as error:
            raise self._connecting(error) from None

    async def upgrade(self, shard_count: int, *, distributed: bool | None = None) -> list[str]:
        check_shard_count(shard_count)
        began, races, refusals = self._clock.monotonic(), 0, 0
        while True:
            try:
                return await self._upgrade(shard_count, distributed)
            except _INIT_RACES as error:
                # Others create the same objects at this moment; "if not exists" does not help against that.
                races += 1
                if races == INIT_RACES_MAX:
                    raise DatabaseBusy(f"upgrade: {reason(error)}") from None
                rest_s = backoff_s(races, first=0.02, most=0.5, spread=self._chance.random())
            except asyncpg.LockNotAvailableError:
                # Nothing is held meanwhile: who waited behind it goes first.
                refusals += 1
                waited_s = self._clock.monotonic() - began
                if waited_s >= UPGRADE_PATIENCE_S:
                    raise UpgradeBlocked(self.installation, waited_s) from None
                rest_s = backoff_s(refusals, first=0.5, most=5.0, spread=self._chance.random())
            await self._clock.sleep(rest_s)

    async def _upgrade(self, shard_count: int, distributed: bool | None) -> list[str]:
        prefix = self._prefix
        connection = await self._connection()
        era = self._era
        try:
            async with connection.own_transaction():
                await connection.execute("set local statement_timeout = 0")  # as an operator may have set it for calls
                await connection.execute(f"create schema if not exists {prefix.rstrip('.')}")
                await connection.execute(
                    f"create table if not exists {prefix}migrations (number integer primary key, name text not null, "
                    "checksum text not null, applied_at timestamptz not null default statement_timestamp())"
                )
                # One at a time from here on; the others wait, then find everything applied. Nobody waits behind them.
                await connection.execute(f"set local lock_timeout = '{UPGRADE_PATIENCE_S:g}s'")
                longest_s = UPGRADE_PATIENCE_S + STATEMENT_TIMEOUT_S
                await connection.execute(f"lock table {prefix}migrations in exclusive mode", timeout=longest_s)
                await connection.execute(f"set local lock_timeout = '{ALTERING_WAITS_S:g}s'")
                applied = await self._apply(connection, shard_count, distributed)
            self._transitions.forget()
            await self._suit(connection)
            return applied
        except (*_INIT_RACES, asyncpg.LockNotAvailableError):
            raise
        except Exception as error:
            self._leave_if_demoted(error, era)
            raise self._failed("upgrade", error) from None
        finally:
            await self._put_back(connection, broken=False)

    async def _apply(self, connection: Connection, shard_count: int, distributed: bool | None) -> list[str]:
        prefix = self._prefix
        rows = await connection.fetch(f"select number, checksum from {prefix}migrations")  # noqa: S608
        applied = {row["number"]: row["checksum"] for row in rows}
        if applied and distributed is not None:
            await self._check_form(connection, distributed)
        todo = missing(load_migrations(self.dialect, self.installation), applied)
        for migration in todo:
            for text in migration.statements:
                await connection.alter(text)
            await connection.execute(
                f"insert into {prefix}migrations (number, name, checksum) values ($1, $2, $3)",  # noqa: S608
                migration.number,
                migration.name,
                migration.checksum,
            )
        if distributed and not applied:
            await self._distribute(connection)
        await connection.execute(
            f"insert into {prefix}installation (shard_count, schema_version, oldest_library) values ($1, $2, $3) "  # noqa: S608
            "on conflict (singleton) do update set schema_version = greatest(installation.schema_version, $2)",
            shard_count,
            LIBRARY_SCHEMA_VERSION,
            OLDEST_LIBRARY if distributed else 1,
        )
        if distributed and not applied:
            await connection.execute(f"update {prefix}installation set distributed = true")  # noqa: S608
        await connection.execute(
            f"insert into {prefix}shard_locks (shard_id) "  # noqa: S608
            f"select generate_series(0, shard_count - 1) from {prefix}installation on conflict do nothing"
        )
        return [f"{migration.number:04}_{migration.name}" for migration in todo]

    async def _check_form(self, connection: Connection, distributed: bool) -> None:
        self._transitions.forget()
        facts = await self._transitions.installation().converse_async(connection.ask)
        if facts.is_distributed != distributed:
            raise FormMismatch(self.installation, is_distributed=facts.is_distributed)

    async def _distribute(self, connection: Connection) -> None:
        on_citus = await connection.fetchval("select exists (select from pg_extension where extname = 'citus')")
        for text in distributing(self.installation, on_citus=on_citus):
            await connection.alter(text)

    async def drop(self) -> None:
        connection = await self._connection()
        era = self._era
        try:
            await connection.execute(f"drop schema if exists {self._prefix[:-1]} cascade")
        except Exception as error:
            self._leave_if_demoted(error, era)
            raise self._failed("drop", error) from None
        finally:
            await self._put_back(connection, broken=False)

    async def watch(self, changed: Hearing) -> None:
        if not self._listen:
            await anyio.sleep_forever()
        failures = 0
        while True:
            era = self._era
            try:
                await self._listen_once(changed)
            except (OSError, asyncpg.PostgresError, TimeoutError, *CONFUSED) as error:
                failures += 1
                self._leave_if_demoted(error, era)
            else:
                failures = 1
            await self._clock.sleep(backoff_s(failures, first=0.1, most=5, spread=self._chance.random()))

    async def _listen_once(self, changed: Hearing) -> None:
        """Listen until the connection ends, or its server takes no more writes."""
        era = self._era
        connection = await self._hosts.connect(**self._how())
        ended = anyio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        self._listening.add(connection)
        try:
            await connection.add_listener(channel_of(self.installation), lambda *told: tell(changed, told[-1]))
            changed(News.ANYTHING)  # what was told before we listened
            while era == self._era and not ended.is_set():
                with anyio.move_on_after(LISTENER_LOOKS_EVERY_S):
                    await ended.wait()
                    return
                if not await connection.fetchval(f"select {TAKES_WRITES}", timeout=CONNECT_TIMEOUT_S):
                    raise asyncpg.ReadOnlySQLTransactionError
        finally:
            self._listening.discard(connection)
            connection.terminate()


_UNKNOWN = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    *CONFUSED,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)


def _lost(name: str, error: Exception) -> DatabaseBusy:
    return DatabaseBusy(f"{name} lost {CONFLICTS_MAX} times: {reason(error)}")
