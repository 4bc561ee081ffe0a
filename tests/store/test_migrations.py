"""Creating and upgrading an installation, and refusing one that does not fit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from uuid import UUID

import anyio
import anyio.to_thread
import asyncpg
import pytest
from sqlalchemy import Engine, Inspector, inspect, text
from sqlalchemy.exc import IntegrityError
from support.behind import change, engine_of
from support.drivers import connect_asyncpg, connect_psycopg

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.errors import InvalidNumber, SchemaMismatch, SchemaMissing, UpgradeBlocked
from matrixsched.store import migrations
from matrixsched.store.chores import TIDY
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION, Migration, load_migrations
from matrixsched.store.opening import open_store
from matrixsched.store.postgresql import store as postgresql_store
from matrixsched.store.sqlite import database as sqlite_database
from matrixsched.store.store import Store

pytestmark = pytest.mark.anyio

ALL_MIGRATIONS = [
    *("0001_initial", "0002_hygiene", "0003_gates", "0004_semaphores", "0005_queues", "0006_events"),
    *("0007_indexes", "0008_operators", "0009_distributed"),
]
DIALECTS = ("postgresql", "sqlite")
DAY = timedelta(days=1)
DEADLINE_S = 20


@pytest.fixture
def engine(database_url: str):
    """Into the database behind the store's back."""
    engine = engine_of(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
async def store(database_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Store]:
    """Open, in a database that is still empty."""
    store = open_store(database_url, clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_an_empty_database_gets_everything_once(store: Store):
    assert await store.upgrade(4) == ALL_MIGRATIONS
    installation = await store.run(store.transitions.installation())
    assert (installation.shard_count, installation.schema_version) == (4, LIBRARY_SCHEMA_VERSION)
    assert [report.shard for report in await store.run(store.transitions.shards(count_max=1))] == [0, 1, 2, 3]
    assert await store.upgrade(4) == []


async def test_an_installation_keeps_its_number_of_shards_and_its_locks(store: Store):
    await store.upgrade(4)
    before = await store.run(store.transitions.shards(count_max=1))
    for other in (2, 64):
        assert await store.upgrade(other) == []
    assert (await store.run(store.transitions.installation())).shard_count == 4
    assert await store.run(store.transitions.shards(count_max=1)) == before


@pytest.mark.parametrize("count", [0, -1, 4097])
async def test_a_number_of_shards_that_makes_no_sense_is_refused(store: Store, count):
    with pytest.raises(InvalidNumber, match="between 1 and 4096"):
        await store.upgrade(count)
    with pytest.raises(SchemaMissing, match="matrixsched init"):
        await store.run(store.transitions.installation())


async def test_ten_at_once_leave_one_installation(database_url: str, anyio_backend):
    applied: list[str] = []

    async def upgrade(count: int) -> None:
        store = open_store(database_url)
        await store.open()
        applied.extend(await store.upgrade(count))
        await store.close()

    async with anyio.create_task_group() as together:
        for count in range(1, 11):
            together.start_soon(upgrade, count)
    assert applied == ALL_MIGRATIONS
    store = open_store(database_url)
    await store.open()
    installation = await store.run(store.transitions.installation())
    locks = await store.run(store.transitions.shards(count_max=1))
    await store.close()
    assert len(locks) == installation.shard_count


async def test_a_newer_schema_that_this_library_may_use_works(store: Store, database_url: str, engine: Engine, clock):
    await store.upgrade(4)
    change(engine, "update {installation} set schema_version = 99, oldest_library = 1")
    assert await store.upgrade(4) == []
    assert (await store.run(store.transitions.installation())).schema_version == 99
    async with App(database_url, clock=clock) as app:
        assert (await app.schedule("anything", id="a")).created


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("schema_version = 99, oldest_library = 98", "needs a library that knows schema 98; this one knows 9"),
        ("schema_version = 1", "is at schema 1, this library needs 8 or newer"),
    ],
)
async def test_a_schema_out_of_range_is_refused_with_a_remedy(
    store: Store, database_url: str, engine: Engine, row, why
):
    await store.upgrade(4)
    change(engine, f"update {{installation}} set {row}")
    app = App(database_url)
    with pytest.raises(SchemaMismatch, match=why) as refused:
        await app.open()
    assert "Run `matrixsched upgrade`" in str(refused.value)
    with pytest.raises(SchemaMismatch):
        app.sync.schedule("anything", id="a")


@pytest.mark.undistributed("it has no older schemas")
async def test_an_installation_of_the_first_schema_is_upgraded_with_all_it_holds(
    database_url: str, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as earlier:
        for module in (postgresql_store, sqlite_database):
            earlier.setattr(module, "load_migrations", lambda *of: load_migrations(*of)[:1])
        earlier.setattr(postgresql_store, "LIBRARY_SCHEMA_VERSION", 1)
        earlier.setattr(migrations, "OLDEST_SCHEMA_SUPPORTED", 1)
        old = App(database_url, clock=clock)
        assert await old.init(shards=4) == ALL_MIGRATIONS[:1]
        async with old:
            await old.schedule("anything", id="a")
    app = App(database_url, clock=clock)
    with pytest.raises(SchemaMismatch, match="is at schema 1, this library needs 8 or newer"):
        await app.open()
    assert await app.init() == ALL_MIGRATIONS[1:]
    async with app:
        assert (await app.get("a")).meta.id == "a"
        assert sum((await app.prune()).values()) == 0
        assert await app.store.run(app.store.transitions.take_chore(TIDY, UUID(int=1), lease=DAY, every=DAY))


@pytest.mark.undistributed("it has no older schemas")
async def test_the_schema_before_works_as_it_is(database_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as earlier:
        for module in (postgresql_store, sqlite_database):
            earlier.setattr(module, "load_migrations", lambda *of: load_migrations(*of)[:8])
        earlier.setattr(postgresql_store, "LIBRARY_SCHEMA_VERSION", 8)
        assert await App(database_url, clock=clock).init(shards=4) == ALL_MIGRATIONS[:8]
    async with App(database_url, clock=clock) as app:
        assert (await app.store.run(app.store.transitions.installation())).schema_version == 8
        assert (await app.schedule("anything", id="a", request_id="once")).created
        assert not (await app.schedule("anything", id="a", request_id="once")).changed
        assert (await app.cancel("a")).changed
    assert await app.init() == ALL_MIGRATIONS[8:]


def test_every_table_that_changes_says_when_it_is_vacuumed(postgres_dsn: str):
    anyio.run(columns, postgres_dsn)
    with connect_psycopg(postgres_dsn) as connection:
        rows = connection.execute(
            "select relname, array_to_string(reloptions, ' ') from pg_class "
            "where relnamespace = 'matrixsched'::regnamespace and relkind = 'r'"
        ).fetchall()
    options = {name: told or "" for name, told in rows}
    assert {name for name, told in options.items() if "autovacuum_vacuum" not in told} == {"installation", "migrations"}
    assert {name for name, told in options.items() if "fillfactor" in told} == {
        *("scheduled_actions", "processing_queue"),
        *("shard_locks", "chores"),
        *("limits", "templates", "quota_settings", "quota_grants", "held_lanes"),
        *("semaphores", "semaphore_tasks"),
        *("queue_tasks", "queue_settings", "queue_workers"),
        *("workers", "worker_minutes"),
    }


async def test_a_schema_without_an_installation_is_refused_with_a_remedy(database_url: str, anyio_backend):
    app = App(database_url)
    with pytest.raises(SchemaMissing, match="matrixsched init"):
        await app.open()
    with pytest.raises(SchemaMissing, match="matrixsched init"):
        app.sync.get("a")


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(store: Store, engine: Engine):
    await store.upgrade(4)
    change(engine, "update {migrations} set checksum = 'other'")
    with pytest.raises(SchemaMismatch, match=r"migration 0001 \(initial\) in the database differs"):
        await store.upgrade(4)


async def test_a_migration_is_the_same_in_every_installation():
    for dialect in DIALECTS:
        here, there = load_migrations(dialect, "default"), load_migrations(dialect, "other")
        assert [one.checksum for one in here] == [one.checksum for one in there]
        assert [one.number for one in here] == list(range(1, LIBRARY_SCHEMA_VERSION + 1))
        assert "matrixsched_other" in there[0].text


async def test_other_installations_get_tables_of_their_own(store: Store, database_url: str, clock):
    await store.upgrade(4)
    other = open_store(database_url, "other", clock=clock)
    await other.open()
    with pytest.raises(SchemaMissing, match="'other'"):
        await other.run(other.transitions.installation())
    assert await other.upgrade(2) == ALL_MIGRATIONS
    assert (await other.run(other.transitions.installation())).shard_count == 2
    assert (await store.run(store.transitions.installation())).shard_count == 4
    await other.close()


# Both dialects hold the same.


async def columns(url: str) -> dict[str, dict[str, bool]]:
    """The columns of each table, and whether they may be null."""
    store = open_store(url)
    await store.open()
    await store.upgrade(4)
    await store.close()
    engine = engine_of(url)
    inspector: Inspector = inspect(engine)
    schema = "matrixsched" if engine.dialect.name == "postgresql" else None
    found = {
        name.removeprefix("matrixsched_"): {
            column["name"]: column["nullable"] for column in inspector.get_columns(name, schema=schema)
        }
        for name in (*inspector.get_table_names(schema=schema), *inspector.get_view_names(schema=schema))
    }
    engine.dispose()
    return found


@pytest.mark.undistributed("it has one table more, and other keys")
async def test_both_dialects_have_the_same_tables_and_columns(postgres_dsn: str, tmp_path: Path, anyio_backend):
    here, there = await columns(f"sqlite:///{tmp_path}/test.db"), await columns(postgres_dsn)
    assert {name: list(of) for name, of in here.items()} == {name: list(of) for name, of in there.items()}
    assert len(here) == 27

    def required(tables: dict[str, dict[str, bool]]) -> set[tuple[str, str]]:
        # A primary key that is the row's number cannot be null in SQLite, but does not say so.
        unsaid = {
            ("migrations", "number"),
            ("installation", "singleton"),
            ("shard_locks", "shard_id"),
            ("queue_tasks", "id"),
        }
        found = {(name, column) for name, of in tables.items() for column, nullable in of.items() if not nullable}
        return found - unsaid

    assert required(here) == required(there)


@pytest.mark.undistributed("it has one table more, and other keys")
async def test_a_shards_guid_is_a_key_so_that_a_takeover_meets_the_fence(postgres_dsn: str, anyio_backend):
    """Partial or missing, the index would let a takeover pass the fence of move and claim unseen."""
    await columns(postgres_dsn)
    with connect_psycopg(postgres_dsn) as connection:
        indexes = connection.execute(
            """
            select i.indisunique, i.indpred is null, i.indexprs is null, i.indisvalid
              from pg_index i
              join pg_attribute a on a.attrelid = i.indrelid and a.attname = 'last_lock_guid'
             where i.indrelid = 'matrixsched.shard_locks'::regclass and i.indkey::text = a.attnum::text
            """
        ).fetchall()
    assert indexes == [(True, True, True, True)]


def statements(dialect: str) -> dict[str, str]:
    folder = files("matrixsched.store").joinpath(f"sql/{dialect}")
    return {file.name: file.read_text("utf-8") for file in folder.iterdir()}


def header(sql: str) -> str:
    """The comment a file begins with, as one line."""
    lines = sql.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return " ".join(line.removeprefix("--").strip() for line in lines[:end])


def test_every_statement_is_there_for_both_dialects():
    # SQLite's workers watch for changes; with one writer what is read is as good as locked, and nothing else moves.
    assert set(statements("postgresql")) - {"wake.sql", "lock_grants.sql", "unblock.sql"} == set(statements("sqlite"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_begins_with_its_promise(dialect):
    for name, sql in statements(dialect).items():
        assert header(sql).startswith(f"{name.removesuffix('.sql')} ({dialect}). Promise: "), name


def test_every_statement_for_sqlite_says_how_it_differs():
    for name, sql in statements("sqlite").items():
        assert f"Differs from postgresql/{name}: " in header(sql), name


# An upgrade beside others' transactions.


def put_back_to_schema_8(dsn: str) -> None:
    with connect_psycopg(dsn) as connection:
        connection.execute("delete from matrixsched.migrations where number = 9")
        connection.execute("alter table matrixsched.installation drop column distributed")


@asynccontextmanager
async def open_transaction(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """Of somebody who has read what the upgrade is to change."""
    connection = await connect_asyncpg(dsn)
    await connection.execute("begin")
    await connection.fetch("select from matrixsched.installation")
    yield connection
    connection.terminate()


@pytest.fixture
async def of_schema_8(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, anyio_backend: str) -> str:
    await App(postgres_dsn).init(shards=1)
    put_back_to_schema_8(postgres_dsn)
    monkeypatch.setattr(postgresql_store, "ALTERING_WAITS_S", 0.2)
    return postgres_dsn


@pytest.mark.undistributed("it has no older schemas")
async def test_an_upgrade_lets_others_pass_while_somebody_is_in_its_way(of_schema_8: str):
    upgraded = list[str]()

    async def upgrade() -> None:
        upgraded.extend(await App(of_schema_8).init())

    async with anyio.create_task_group() as group, open_transaction(of_schema_8) as ours:
        with connect_psycopg(of_schema_8, autocommit=True) as reader:
            reader.execute("set lock_timeout = '10s'")
            group.start_soon(upgrade)
            waits = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and not granted"
            with anyio.fail_after(DEADLINE_S):
                while not await ours.fetchval(waits):
                    pass
            await anyio.to_thread.run_sync(lambda: reader.execute("select from matrixsched.installation"))
        assert not upgraded
        await ours.execute("commit")
    assert upgraded == ALL_MIGRATIONS[8:]


@pytest.mark.undistributed("it has no older schemas")
async def test_an_upgrade_that_never_gets_its_locks_says_so_and_changes_nothing(
    of_schema_8: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(postgresql_store, "UPGRADE_PATIENCE_S", 1.0)
    async with open_transaction(of_schema_8):
        with pytest.raises(UpgradeBlocked, match="nothing was changed.*matrixsched doctor --patience 0") as refused:
            await App(of_schema_8).init()
    assert refused.value.waited_s >= 1
    assert await App(of_schema_8).init() == ALL_MIGRATIONS[8:]


@pytest.mark.parametrize("limited", ["by us", "by the operator"])
@pytest.mark.undistributed("it has no older schemas")
async def test_a_migration_may_take_longer_than_a_call(of_schema_8: str, monkeypatch: pytest.MonkeyPatch, limited: str):
    if limited == "by us":
        monkeypatch.setattr(postgresql_store, "STATEMENT_TIMEOUT_S", 1.0)
    else:
        with connect_psycopg(of_schema_8, autocommit=True) as connection:
            name = connection.info.dbname
            connection.execute(f'alter database "{name}" set statement_timeout = 1000'.encode())
    slow = Migration(10, "slow", "", "select pg_sleep(1.5)")
    monkeypatch.setattr(postgresql_store, "load_migrations", lambda *of: [*load_migrations(*of), slow])
    assert await App(of_schema_8).init() == [*ALL_MIGRATIONS[8:], "0010_slow"]


# Rows that must never be.


@pytest.fixture
async def a_row(store: Store, engine: Engine) -> Callable[..., None]:
    """Writes a row of a table, all right but for the columns that are given."""
    await store.upgrade(4)
    moment: object = "2030-01-01T00:00:00Z" if engine.dialect.name == "postgresql" else 1
    later: object = "2030-01-02T00:00:00Z" if engine.dialect.name == "postgresql" else 2
    guid = "00000000-0000-4000-8000-000000000001"
    key = {"shard_id": 0, "action_id": "a", "action_guid": guid}
    usual: dict[str, dict[str, object]] = {
        "scheduled_actions": key
        | {"version": 1, "revision": 1, "handler": "h", "payload": b"", "terms": "{}", "lane": "", "priority": 0}
        | {"state": "live", "scheduled_at": moment, "tick": 0, "tick_at": moment, "finished_at": None}
        | {"created_at": moment, "updated_at": moment},
        "processing_queue": key
        | {"lane": "", "scheduled_at": moment, "attempt": 0, "interrupted": 0, "claimed_by": None, "claimed_at": None}
        | {"added_at": moment, "moved_by": guid, "moved_at": moment},
        "queue_tasks": {"queue": 1, "attempts": 0, "created_at": moment, "start_at": moment, "due_at": moment}
        | {"previous_start_at": None, "receipt": None, "data": b""},
        "known_queues": {"queue": 1},
        "queue_settings": {"queue": 1, "updated_at": moment},
        "queue_workers": {"worker": guid, "name": "w", "processors_max": 1, "report": "{}", "seen_at": moment},
    }

    def write(name: str, **columns: object) -> None:
        special = {"now": moment, "later": later, "guid": guid}
        given = {column: special.get(str(value), value) for column, value in columns.items()}
        row = usual[name] | given
        names, values = ", ".join(row), ", ".join(f":{column}" for column in row)
        change(engine, f"insert into {{{name}}} ({names}) values ({values})", **row)

    return write


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "live", "finished_at": "now"},
        {"state": "done"},
        {"state": "unheard of", "finished_at": "now"},
        {"succeeded": -1},
        {"failed": -1},
        {"interrupted": -1},
        {"missed": -1},
        {"consecutive_failures": -1},
        {"tick_failures": -1},
        {"action_id": ""},
        {"action_id": "a" * 257},
        {"action_id": "ä" * 128 + "a"},
    ],
    ids=str,
)
async def test_impossible_actions_are_refused_by_the_database(a_row, wrong):
    a_row("scheduled_actions", action_id="ä" * 128)
    with pytest.raises(IntegrityError):
        a_row("scheduled_actions", **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"claimed_by": "guid", "claimed_at": "now", "attempt": 0},
        {"claimed_by": "guid", "attempt": 1},
        {"attempt": -1},
        {"interrupted": -1},
    ],
    ids=str,
)
async def test_impossible_rows_are_refused_by_the_database(a_row, wrong):
    a_row("processing_queue", action_id="b", claimed_by="guid", claimed_at="now", attempt=1)
    with pytest.raises(IntegrityError):
        a_row("processing_queue", **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": -1},
        {"attempts": -1, "previous_start_at": "now"},
        {"attempts": 1},
        {"previous_start_at": "now"},
        {"due_at": "later"},
        {"data": None},
    ],
    ids=str,
)
async def test_impossible_tasks_of_queues_are_refused_by_the_database(a_row, wrong):
    a_row("queue_tasks", receipt="guid", due_at="later")
    a_row("queue_tasks", attempts=1, previous_start_at="now")
    with pytest.raises(IntegrityError):
        a_row("queue_tasks", **wrong)


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ("known_queues", {"queue": -1}),
        ("queue_settings", {"batch_size": 0}),
        ("queue_settings", {"processors_max": -1}),
        ("queue_settings", {"queue": -1}),
        ("queue_workers", {"processors_max": -1}),
        ("queue_workers", {"assignment": "{}"}),
        ("queue_workers", {"assigned_at": "now"}),
    ],
    ids=str,
)
async def test_impossible_settings_and_workers_are_refused_by_the_database(a_row, table, wrong):
    with pytest.raises(IntegrityError):
        a_row(table, **wrong)
    a_row(table)


async def test_a_database_of_somebody_else_stays_as_it_is(database_url: str, engine: Engine, store: Store):
    change(engine, "create table orders (id integer)")
    await store.upgrade(4)
    change(engine, "insert into orders values (1)")
    with engine.connect() as connection:
        assert connection.execute(text("select count(*) from orders")).scalar() == 1
