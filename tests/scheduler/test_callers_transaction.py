"""Scheduling inside the caller's own transaction, with every driver we promise to work with."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from matrixsched import App, call, every
from matrixsched.errors import ActionNotFound, BadInput, GuidMismatch, InvalidId
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


def with_driver(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


@pytest.fixture(params=["aiosqlite", "asyncpg", "psycopg"])
def driver(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def database_url(driver: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/test.db" if driver == "aiosqlite" else request.getfixturevalue("postgres_dsn")


@pytest.fixture
async def engine(database_url: str, driver: str, app: App):
    engine = create_async_engine(with_driver(database_url, driver))
    yield engine
    await engine.dispose()


@pytest.fixture
def sync_engine(database_url: str, app: App):
    engine = create_engine(with_driver(database_url, "pysqlite" if "sqlite" in database_url else "psycopg"))
    yield engine
    engine.dispose()


@pytest.fixture
def ran(app: App) -> list[str]:
    ran: list[str] = []

    @app.action("note")
    async def note(text: str) -> None:
        ran.append(text)

    return ran


async def test_what_is_rolled_back_was_never_scheduled(app, engine: AsyncEngine, ran):
    async with engine.connect() as connection:
        scheduled = await app.schedule("note", "a", id="n", connection=connection)
        assert scheduled.created
        assert (await app.get("n", connection=connection)).meta.guid == scheduled.guid
        await connection.rollback()
    with pytest.raises(ActionNotFound):
        await app.get("n")
    assert await Worker(app).run_due() == 0
    assert ran == []


async def test_what_is_committed_runs(app, engine: AsyncEngine, ran):
    async with engine.begin() as connection:
        await connection.execute(text("create table orders (id integer)"))
        await connection.execute(text("insert into orders values (1)"))
        await app.schedule("note", "a", id="n", connection=connection)
    assert await Worker(app).run_due() == 1
    assert ran == ["a"]


async def test_a_session_works_like_a_connection_with_every_operation(app, clock, engine: AsyncEngine, ran):
    async with AsyncSession(engine) as session, session.begin():
        first = await app.schedule("note", "a", id="a", delay=HOUR, connection=session)
        await app.schedule("note", "b", id="b", repeat=every(HOUR), connection=session)
        many = await app.schedule_many((call("note", str(n), id=f"m{n}") for n in range(1500)), connection=session)
        assert many.created == 1500
        moved = await app.reschedule("a", delay=2 * HOUR, expected_guid=first.guid, connection=session)
        with pytest.raises(GuidMismatch):
            await app.run_now("a", expected_guid=first.guid, connection=session)
        await app.schedule("note", "A", id="a", delay=HOUR, expected_guid=moved.guid, connection=session)
        await app.cancel("m7", connection=session)
        kept = await app.schedule("note", "x", id="a", exists="keep", connection=session)
        assert not kept.changed
        assert len(await app.list(id_prefix="m", limit=2000, connection=session)) == 1500
    assert await Worker(app).run_due() == 1500  # 1,499 of the many and the first tick of b
    assert "7" not in ran


async def test_a_savepoint_that_is_rolled_back_takes_only_its_own_with_it(app, engine: AsyncEngine, ran):
    async with engine.begin() as connection:
        await app.schedule("note", "kept", id="kept", connection=connection)
        savepoint = await connection.begin_nested()
        await app.schedule("note", "gone", id="gone", connection=connection)
        await app.schedule("note", "gone", id="kept", connection=connection)
        await savepoint.rollback()
    await Worker(app).run_due()
    assert ran == ["kept"]


async def test_bad_input_leaves_the_callers_transaction_usable(app, engine: AsyncEngine, ran):
    async with engine.begin() as connection:
        with pytest.raises(InvalidId):
            await app.schedule("note", "a", id="", connection=connection)
        with pytest.raises(ActionNotFound):
            await app.cancel("nobody", connection=connection)
        await app.schedule("note", "b", id="b", connection=connection)
    await Worker(app).run_due()
    assert ran == ["b"]


async def test_the_same_request_in_two_transactions_takes_effect_once(app, engine: AsyncEngine, ran):
    for _ in range(2):
        async with engine.begin() as connection:
            await app.schedule("note", "a", id="n", request_id="r", connection=connection)
    assert await Worker(app).run_due() == 1


def test_synchronous_connections_and_sessions_work_too(app, sync_engine: Engine, ran):
    with sync_engine.begin() as connection:
        scheduled = app.sync.schedule("note", "a", id="a", delay=HOUR, connection=connection)
        app.sync.reschedule("a", delay=2 * HOUR, expected_guid=scheduled.guid, connection=connection)
    with Session(sync_engine) as session, session.begin():
        app.sync.schedule("note", "b", id="b", connection=session)
        app.sync.run_now("a", connection=session)
        app.sync.schedule_many((call("note", str(n), id=f"m{n}") for n in range(10)), connection=session)
        assert app.sync.get("b", connection=session).id == "b"
        assert len(app.sync.list(connection=session)) == 12
        app.sync.cancel("m3", connection=session)
    with sync_engine.connect() as connection:
        app.sync.schedule("note", "c", id="c", connection=connection)
        connection.rollback()
    with pytest.raises(ActionNotFound), sync_engine.connect() as connection:
        app.sync.get("c", connection=connection)


async def test_a_connection_of_the_wrong_kind_is_refused(app, engine: AsyncEngine, sync_engine: Engine, ran):
    with sync_engine.connect() as connection, pytest.raises(BadInput, match=r"app\.sync"):
        await app.schedule("note", "a", connection=connection)
    with pytest.raises(BadInput, match="must be a Connection or Session, not str"):
        app.sync.schedule("note", "a", connection="sqlite://")
    async with engine.connect() as other:
        with pytest.raises(BadInput, match="not AsyncConnection"):
            app.sync.schedule("note", "a", connection=other)


def test_a_connection_to_another_kind_of_database_is_refused(app, database_url, postgres_dsn, ran):
    speaks = "postgresql" if "sqlite" in database_url else "sqlite"
    other = create_engine("sqlite://" if speaks == "sqlite" else with_driver(postgres_dsn, "psycopg"))
    with other.connect() as connection, pytest.raises(BadInput, match=f"speaks {speaks}"):
        app.sync.schedule("note", "a", connection=connection)
    other.dispose()


async def test_a_database_error_in_the_callers_transaction_shows_no_payload(app, sync_engine: Engine, ran):
    with sync_engine.connect() as connection:
        connection.execute(text("select 1"))
        prefix = "matrixsched." if connection.dialect.name == "postgresql" else "matrixsched_"
        connection.execute(text(f"alter table {prefix}incoming_queue rename to incoming_elsewhere"))
        with pytest.raises(Exception, match="incoming_queue") as failed:
            app.sync.schedule("note", "very secret", id="n", connection=connection)
        assert "very secret" not in str(failed.value)
        connection.rollback()
