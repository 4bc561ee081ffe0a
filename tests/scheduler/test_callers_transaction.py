"""Scheduling inside the caller's own transaction, with every library we promise to work with."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiosqlite
import anyio
import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from sqlalchemy.event import listen
from support import drivers
from support.callers import (
    ASYNC_KINDS,
    SYNC_KINDS,
    AsyncCaller,
    SyncCaller,
    async_caller,
    django_connection,
    path_of,
    sync_caller,
)

from matrixsched import App, call, every
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import ActionNotFound, BadInput, GuidMismatch, InvalidId, UnknownTemplate
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
WHEN = datetime(2030, 7, 1, 12, tzinfo=UTC)
COMMITTING_EACH_STATEMENT = ["aiosqlite", "asyncpg", "asyncpg pool", "psycopg"]
OTHER = {"sqlite": "postgresql://nobody@localhost/nowhere", "postgresql": "sqlite://"}


@pytest.fixture(params=ASYNC_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def database_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    dialect = ASYNC_KINDS.get(kind) or SYNC_KINDS[kind]
    return f"sqlite:///{tmp_path}/test.db" if dialect == "sqlite" else request.getfixturevalue("postgres_dsn")


@pytest.fixture
async def caller(app: App, kind: str, database_url: str) -> AsyncIterator[AsyncCaller]:
    async with async_caller(kind, database_url) as caller:
        yield caller


def noting(app: App) -> list[str]:
    ran: list[str] = []

    @app.action("note")
    async def note(text: str) -> None:
        ran.append(text)

    return ran


@pytest.fixture
def ran(app: App) -> list[str]:
    return noting(app)


# Asynchronous.


async def test_what_is_rolled_back_was_never_scheduled(app, caller, ran):
    await caller.begin()
    scheduled = await app.schedule("note", "a", id="n", connection=caller.connection)
    assert scheduled.created
    assert (await app.get("n", connection=caller.connection)).meta.guid == scheduled.guid
    await caller.rollback()
    with pytest.raises(ActionNotFound):
        await app.get("n")
    assert await Worker(app).run_due() == 0
    assert ran == []


async def test_what_is_committed_runs(app, caller, ran):
    await caller.begin()
    await caller.execute("create table orders (id integer)")
    await caller.execute("insert into orders values (1)")
    await app.schedule("note", "a 100% 'a' :b %(c)s", id="n", connection=caller.connection)
    await caller.commit()
    assert await Worker(app).run_due() == 1
    assert ran == ["a 100% 'a' :b %(c)s"]


async def test_a_template_is_looked_for_on_the_callers_connection(app, caller, ran):
    await app.templates.set("promo")
    await caller.begin()
    await app.schedule("note", "a", id="a", template="promo", zone="Asia/Tokyo", connection=caller.connection)
    await app.schedule_many([call("note", "b", id="b", template="promo")], connection=caller.connection)
    assert len(await app.list(template="promo", connection=caller.connection)) == 2
    for refused in (
        app.schedule("note", "c", id="c", template="prom", connection=caller.connection),
        app.schedule_many([call("note", "c", id="c", template="prom")], connection=caller.connection),
    ):
        with pytest.raises(UnknownTemplate) as caught:
            await refused
        assert caught.value.close == ("promo",)
    await caller.commit()
    assert {action.id for action in await app.list()} == {"a", "b"}


async def test_every_operation_works(app, caller, ran):
    connection = caller.connection
    await caller.begin()
    first = await app.schedule("note", "a", id="a", delay=HOUR, connection=connection)
    await app.schedule("note", "b", id="b", repeat=every(HOUR), connection=connection)
    many = await app.schedule_many((call("note", str(n), id=f"m{n}") for n in range(1500)), connection=connection)
    assert many.created == 1500
    moved = await app.reschedule("a", delay=2 * HOUR, expected_guid=first.guid, connection=connection)
    with pytest.raises(GuidMismatch):
        await app.run_now("a", expected_guid=first.guid, connection=connection)
    await app.schedule("note", "A", id="a", delay=HOUR, expected_guid=moved.guid, connection=connection)
    await app.cancel("m7", connection=connection)
    kept = await app.schedule("note", "x", id="a", exists="keep", connection=connection)
    assert not kept.changed
    assert len(await app.list(id_prefix="m", limit=2000, connection=connection)) == 1500
    assert [one.id for one in await app.list(state="cancelled", connection=connection)] == ["m7"]
    await caller.commit()
    assert await Worker(app).run_due() == 1500  # 1,499 of the many and the first tick of b
    assert "7" not in ran


async def test_what_is_read_is_what_was_written(app, caller, ran):
    await caller.begin()
    for id, at in (("a", WHEN), ("b", None)):
        await app.schedule("note", "\x00é", id=id, at=at, expires_at=2 * HOUR + WHEN, connection=caller.connection)
        inside = await app.get(id, connection=caller.connection)
        assert inside.status.scheduled_at.utcoffset() is not None
    await caller.commit()
    assert await app.get("b") == inside
    assert (await app.get("a")).status.scheduled_at == WHEN


async def test_a_savepoint_that_is_rolled_back_takes_only_its_own_with_it(app, caller, ran):
    await caller.begin()
    await app.schedule("note", "kept", id="kept", connection=caller.connection)
    await caller.execute("savepoint here")
    await app.schedule("note", "gone", id="gone", connection=caller.connection)
    await app.schedule("note", "gone", id="kept", connection=caller.connection)
    await caller.execute("rollback to savepoint here")
    await caller.commit()
    await Worker(app).run_due()
    assert ran == ["kept"]


async def test_bad_input_leaves_the_callers_transaction_usable(app, caller, ran):
    await caller.begin()
    with pytest.raises(InvalidId):
        await app.schedule("note", "a", id="", connection=caller.connection)
    with pytest.raises(ActionNotFound):
        await app.cancel("nobody", connection=caller.connection)
    await app.schedule("note", "b", id="b", connection=caller.connection)
    await caller.commit()
    await Worker(app).run_due()
    assert ran == ["b"]


async def test_the_same_request_in_two_transactions_takes_effect_once(app, caller, ran):
    for _ in range(2):
        await caller.begin()
        await app.schedule("note", "a", id="n", request_id="r", connection=caller.connection)
        await caller.commit()
    assert await Worker(app).run_due() == 1


async def test_a_connection_to_another_kind_of_database_is_refused(caller, kind):
    other = App(OTHER[ASYNC_KINDS[kind]])
    await caller.begin()
    with pytest.raises(BadInput, match=f"the connection speaks {ASYNC_KINDS[kind]}"):
        await other.schedule("note", "a", connection=caller.connection)
    await caller.rollback()


@pytest.mark.parametrize("kind", COMMITTING_EACH_STATEMENT, indirect=True)
async def test_a_connection_without_a_transaction_is_refused(app, caller, ran):
    with pytest.raises(BadInput, match="no transaction is open on the connection, .* or leave connection out"):
        await app.schedule("note", "a", id="n", connection=caller.connection)
    assert await app.list() == []


@pytest.mark.parametrize("kind", ["aiosqlite", "psycopg"], indirect=True)
async def test_a_connection_that_begins_by_itself_needs_no_begin(app, database_url, kind, ran):
    if kind == "aiosqlite":
        opened = aiosqlite.connect(path_of(database_url))
    else:
        opened = await psycopg.AsyncConnection.connect(**drivers.of_psycopg(database_url))
    async with opened as connection:
        await app.schedule("note", "gone", id="gone", connection=connection)
        await connection.rollback()
        await app.schedule("note", "kept", id="kept", connection=connection)
        await connection.commit()
    await Worker(app).run_due()
    assert ran == ["kept"]


@pytest.mark.parametrize("kind", [kind for kind in ASYNC_KINDS if kind.startswith("sqlalchemy")], indirect=True)
async def test_a_connection_of_sqlalchemy_that_commits_each_statement_is_refused(app, caller, ran):
    connection = await caller.connection.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(BadInput, match=r"no transaction is open on the connection.* AUTOCOMMIT"):
        await app.schedule("note", "a", id="n", connection=connection)
    await connection.rollback()
    assert await app.list() == []


@pytest.mark.parametrize("kind", ["psycopg"], indirect=True)
async def test_a_pipeline_of_psycopg_takes_actions(app, caller, ran):
    await caller.begin()
    async with caller.connection.pipeline():
        await caller.connection.execute("select 1")
        await app.schedule("note", "a", id="a", connection=caller.connection)
        await app.schedule("note", "b", id="b", connection=caller.connection)
    await caller.commit()
    await Worker(app).run_due()
    assert sorted(ran) == ["a", "b"]


async def test_a_synchronous_connection_is_sent_to_the_synchronous_calls(app, database_url, ran):
    kind = "sqlite3" if app.store.dialect == "sqlite" else "psycopg"
    with sync_caller(kind, database_url) as other, pytest.raises(BadInput, match=r"app\.sync"):
        await app.schedule("note", "a", connection=other.connection)


async def test_an_asynchronous_connection_is_sent_to_the_asynchronous_calls(app, caller, ran):
    name = type(caller.connection).__name__
    with pytest.raises(BadInput, match=f"not [a-z]+'s {name}; asynchronous ones go with the calls of the App itself"):
        app.sync.schedule("note", "a", connection=caller.connection)


async def test_what_is_no_connection_is_refused(app, ran):
    with pytest.raises(BadInput, match="connection must be a Connection or Session of SQLAlchemy, .* not str"):
        app.sync.schedule("note", "a", connection="sqlite://")
    with pytest.raises(BadInput, match="connection must be an AsyncConnection or .* not type"):
        await app.schedule("note", "a", connection=sqlite3.Connection)


# Synchronous.

SYNCHRONOUS = pytest.mark.parametrize("kind", SYNC_KINDS, indirect=True)


@pytest.fixture
def sync_app(database_url: str, clock: ManualClock) -> Iterator[App]:
    app = App(database_url, clock=clock, chance=SeededChance(1))
    app.sync.init(shards=4)
    with app.sync:
        yield app


@pytest.fixture
def sync(sync_app: App, kind: str, database_url: str) -> Iterator[SyncCaller]:
    with sync_caller(kind, database_url) as caller:
        yield caller


def run_by_a_worker(app: App) -> list[str]:
    """What a worker in another process would run now."""
    other = App(app.url, clock=app.clock, chance=SeededChance(2))
    ran = noting(other)

    async def run() -> None:
        async with other:
            await Worker(other).run_due()

    anyio.run(run)
    return sorted(ran)


@SYNCHRONOUS
def test_synchronous_transactions_take_every_operation(sync_app, sync):
    app, connection = sync_app.sync, sync.connection
    sync.begin()
    scheduled = app.schedule("note", "a", id="a", at=WHEN, connection=connection)
    app.reschedule("a", delay=2 * HOUR, expected_guid=scheduled.guid, connection=connection)
    app.schedule("note", "tick", id="r", repeat=every(HOUR), connection=connection)
    sync.commit()
    sync.begin()
    app.schedule("note", "100% 'b' :c %s", id="b", connection=connection)
    app.run_now("a", connection=connection)
    app.schedule_many((call("note", str(n), id=f"m{n}") for n in range(4)), connection=connection)
    inside = app.get("b", connection=connection)
    assert inside.status.scheduled_at.utcoffset() is not None
    assert len(app.list(connection=connection)) == 7
    app.cancel("m3", connection=connection)
    sync.commit()
    assert app.get("b") == inside
    sync.begin()
    app.schedule("note", "c", id="c", connection=connection)
    sync.rollback()
    assert run_by_a_worker(sync_app) == ["0", "1", "100% 'b' :c %s", "2", "a", "tick"]


@SYNCHRONOUS
def test_a_synchronous_savepoint_takes_only_its_own_with_it(sync_app, sync):
    sync.begin()
    sync_app.sync.schedule("note", "kept", id="kept", connection=sync.connection)
    sync.execute("savepoint here")
    sync_app.sync.schedule("note", "gone", id="gone", connection=sync.connection)
    sync.execute("rollback to savepoint here")
    with pytest.raises(ActionNotFound):
        sync_app.sync.cancel("gone", connection=sync.connection)
    sync.commit()
    assert run_by_a_worker(sync_app) == ["kept"]


@SYNCHRONOUS
def test_a_synchronous_connection_to_another_kind_of_database_is_refused(sync, kind):
    other = App(OTHER[SYNC_KINDS[kind]])
    sync.begin()
    with pytest.raises(BadInput, match=f"the connection speaks {SYNC_KINDS[kind]}"):
        other.sync.schedule("note", "a", connection=sync.connection)
    sync.rollback()


@SYNCHRONOUS
def test_a_database_error_in_the_callers_transaction_shows_no_payload(sync_app, sync):
    prefix = "matrixsched." if sync_app.store.dialect == "postgresql" else "matrixsched_"
    sync.begin()
    sync.execute(f"alter table {prefix}incoming_queue rename to incoming_elsewhere")
    with pytest.raises(Exception, match="incoming_queue") as failed:
        sync_app.sync.schedule("note", "very secret", id="n", connection=sync.connection)
    assert "very secret" not in str(failed.value)
    sync.rollback()


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"], indirect=True)
def test_a_synchronous_connection_without_a_transaction_is_refused(sync_app, sync):
    with pytest.raises(BadInput, match="no transaction is open on the connection"):
        sync_app.sync.schedule("note", "a", connection=sync.connection)
    assert sync_app.sync.list() == []


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("sqlalchemy pysqlite", {"isolation_level": "AUTOCOMMIT"}),
        ("sqlalchemy pysqlite", {"connect_args": {"isolation_level": None}}),
        ("sqlalchemy psycopg", {"isolation_level": "AUTOCOMMIT"}),
    ],
    indirect=["kind"],
)
def test_an_engine_of_sqlalchemy_that_commits_each_statement_is_refused(sync_app, database_url, kind, options):
    engine = drivers.engine(database_url, kind.split()[1], **options)
    with engine.connect() as own, pytest.raises(BadInput, match="no transaction is open on the connection"):
        sync_app.sync.schedule("note", "a", connection=own)
    engine.dispose()
    assert sync_app.sync.list() == []


@pytest.mark.parametrize("kind", ["sqlalchemy pysqlite"], indirect=True)
def test_an_engine_that_tells_sqlite_itself_how_to_begin_is_welcome(sync_app, database_url, kind):
    engine = drivers.engine(database_url, "pysqlite", connect_args={"isolation_level": None})
    listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin immediate"))
    with engine.connect() as own:
        sync_app.sync.schedule("note", "gone", id="gone", connection=own)
        own.rollback()
        sync_app.sync.schedule("note", "kept", id="kept", connection=own)
        own.commit()
    engine.dispose()
    assert run_by_a_worker(sync_app) == ["kept"]


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"], indirect=True)
def test_a_synchronous_connection_that_begins_by_itself_needs_no_begin(sync_app, database_url, kind):
    own = sqlite3.connect(path_of(database_url)) if kind == "sqlite3" else drivers.connect_psycopg(database_url)
    own.row_factory = sqlite3.Row if kind == "sqlite3" else psycopg.rows.namedtuple_row
    sync_app.sync.schedule("note", "gone", id="gone", connection=own)
    own.rollback()
    sync_app.sync.schedule("note", "kept", id="kept", connection=own)
    own.commit()
    own.close()
    assert run_by_a_worker(sync_app) == ["kept"]


def test_a_subclass_of_a_connection_works_like_it(tmp_path):
    class Traced(sqlite3.Connection): ...

    app = App(f"sqlite:///{tmp_path}/test.db")
    app.sync.init(shards=1)
    own = sqlite3.connect(tmp_path / "test.db", factory=Traced)
    app.sync.schedule("note", "a", id="a", connection=own)
    own.commit()
    own.close()
    with app.sync:
        assert app.sync.get("a").id == "a"


# Django.

DJANGO = pytest.mark.parametrize("kind", ["django sqlite", "django postgresql"], indirect=True)


@DJANGO
def test_an_atomic_block_of_django_commits_and_rolls_back_with_the_action(sync_app, sync):
    def fail_after_scheduling(id: str) -> None:
        with transaction.atomic():
            sync_app.sync.schedule("note", id, id=id, connection=connection)
            raise ZeroDivisionError

    with transaction.atomic():
        sync_app.sync.schedule("note", "outer", id="outer", connection=connection)
        with pytest.raises(ZeroDivisionError):
            fail_after_scheduling("inner")
    with pytest.raises(ZeroDivisionError):
        fail_after_scheduling("gone")
    assert run_by_a_worker(sync_app) == ["outer"]


@DJANGO
def test_outside_of_an_atomic_block_each_call_is_a_transaction_of_its_own(sync_app, sync):
    sync_app.sync.schedule("note", "a", id="a", connection=connection)
    many = [call("note", "b", id="b"), call("note", "c", id="a")]
    with pytest.raises(Exception, match="'a' exists already"):
        sync_app.sync.schedule_many(many, exists="error", connection=connection)
    assert not connection.in_atomic_block
    assert run_by_a_worker(sync_app) == ["a"]


@DJANGO
def test_django_wraps_errors_and_notes_no_payload(sync_app, sync):
    prefix = "matrixsched." if sync_app.store.dialect == "postgresql" else "matrixsched_"
    connection.force_debug_cursor = True
    transaction.set_autocommit(False)
    sync_app.sync.schedule("note", "very secret", id="n", connection=connection)
    sync.execute(f"alter table {prefix}incoming_queue rename to incoming_elsewhere")
    with pytest.raises(DatabaseError) as failed:
        sync_app.sync.schedule("note", "very secret", id="m", connection=connection)
    connection.force_debug_cursor = False
    transaction.rollback()
    transaction.set_autocommit(True)
    assert "very secret" not in str(failed.value) + str(connection.queries)
    assert "incoming_elsewhere" in str(connection.queries)
    assert sync_app.sync.list() == []


@DJANGO
def test_a_transaction_that_django_knows_to_be_broken_is_not_gone_on_with(sync_app, sync):
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            sync_app.sync.schedule("note", "a", id="a", connection=connection)
    assert sync_app.sync.list() == []


def test_a_database_that_we_do_not_speak_is_refused(tmp_path):
    app = App(f"sqlite:///{tmp_path}/test.db")
    other = django_connection("sqlite:///:memory:")
    other.vendor = "mysql"
    with pytest.raises(BadInput, match="the connection speaks mysql, this application's database is sqlite"):
        app.sync.schedule("note", "a", connection=other)
    engine = drivers.engine("sqlite://", "pysqlite")
    with engine.connect() as mine:
        mine.dialect.name = "oracle"
        with pytest.raises(BadInput, match="speaks oracle"):
            app.sync.schedule("note", "a", connection=mine)
    engine.dispose()
