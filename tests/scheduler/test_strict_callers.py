"""Inside of SERIALIZABLE transactions of callers, who begin them again when PostgreSQL refuses them, also at COMMIT.

What refuses them reaches them as their own library raises it, with the code that their retries look for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from support.callers import ASYNC_KINDS, SYNC_KINDS, AsyncCaller, SyncCaller, async_caller, sync_caller
from support.drivers import async_engine

from matrixsched import App, State
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import MatrixSchedError
from matrixsched.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.installed]

REFUSED = {"40001", "40P01"}
STRICTLY = "set transaction isolation level serializable"
REFUSAL = "could not serialize access"
ON_CALL = (
    "create table on_call (doctor text primary key, is_there boolean)",
    "insert into on_call values ('a', true), ('b', true)",
)
"""Each looks whether the other is there, and leaves: one after the other, only one would."""
CALLERS = 8
TRIES_MAX = 200


@pytest.fixture
def database_url(postgres_dsn: str) -> str:
    return postgres_dsn


@pytest.fixture
async def app(database_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[App]:
    app = App(database_url, clock=clock, chance=SeededChance(1))
    async with app:
        yield app


@pytest.fixture(params=[kind for kind, dialect in ASYNC_KINDS.items() if dialect == "postgresql"])
async def callers(request: pytest.FixtureRequest, app: App) -> AsyncIterator[tuple[AsyncCaller, AsyncCaller]]:
    async with async_caller(request.param, app.url) as one, async_caller(request.param, app.url) as other:
        yield one, other


@pytest.fixture(params=[kind for kind, dialect in SYNC_KINDS.items() if dialect == "postgresql"])
def sync_callers(request: pytest.FixtureRequest, postgres_dsn: str) -> Iterator[tuple[SyncCaller, SyncCaller]]:
    # Of Django there is one connection under an alias; another library's is as good for the second.
    with sync_caller(request.param, postgres_dsn) as one, sync_caller("psycopg", postgres_dsn) as other:
        yield one, other


def code_of(error: BaseException) -> str | None:
    """What retries look for: on the error, on what SQLAlchemy keeps as `orig`, or on its cause."""
    seen: list[Any] = [error]
    for one in seen:
        if code := getattr(one, "sqlstate", None):
            return str(code)
        seen += [deeper for deeper in (getattr(one, "orig", None), one.__cause__) if deeper is not None]
    return None


async def begin(caller: AsyncCaller) -> None:
    await caller.begin()
    await caller.execute(STRICTLY)


async def test_who_changes_what_was_changed_since_is_refused_as_by_any_statement(app: App, callers: Any):
    caller, _ = callers
    await app.schedule("note", id="a")
    await begin(caller)
    await caller.execute("select from matrixsched.scheduled_actions")  # its view of everything is fixed from here on
    await app.schedule("note", id="a", priority=1)
    with pytest.raises(Exception, match=REFUSAL) as refused:
        await app.schedule("note", id="a", priority=2, connection=caller.connection)
    assert code_of(refused.value) == "40001"
    assert not isinstance(refused.value, MatrixSchedError)
    await caller.rollback()
    await begin(caller)
    await app.schedule("note", id="a", priority=2, connection=caller.connection)
    await caller.commit()
    assert (await app.get("a")).spec.priority == 2


@pytest.mark.parametrize("change", ["cancel", "reschedule", "run_now"])
async def test_so_are_all_changes(app: App, change: str):
    async with async_caller("sqlalchemy asyncpg", app.url) as caller:
        await app.schedule("note", id="a")
        await begin(caller)
        await caller.execute("select from matrixsched.scheduled_actions")
        await app.schedule("note", id="a", priority=1)
        options = {"at": app.clock.now()} if change == "reschedule" else {}
        with pytest.raises(DBAPIError) as refused:
            await getattr(app, change)("a", connection=caller.connection, **options)
        assert code_of(refused.value) == "40001"
        await caller.rollback()
        assert (await app.get("a")).status.state is State.LIVE


async def test_who_is_refused_at_commit_has_scheduled_nothing_and_does_it_all_again(app: App, callers: Any):
    first, second = callers
    await first.begin()
    for statement in ON_CALL:
        await first.execute(statement)
    await first.commit()

    async def leave(caller: AsyncCaller, doctor: str) -> None:
        await caller.execute("select from on_call where is_there")
        await caller.execute(f"update on_call set is_there = false where doctor = '{doctor}'")
        await app.schedule("note", id=f"{doctor} left", connection=caller.connection)

    await begin(first)
    await begin(second)
    await leave(first, "a")
    await leave(second, "b")
    await first.commit()
    with pytest.raises(Exception, match=REFUSAL) as refused:
        await second.commit()
    assert code_of(refused.value) == "40001"
    assert [action.id for action in await app.list()] == ["a left"]
    await second.rollback()
    await begin(second)
    await leave(second, "b")
    await second.commit()
    assert [action.id for action in await app.list()] == ["a left", "b left"]


def test_also_in_a_synchronous_transaction(app: App, sync_callers: tuple[SyncCaller, SyncCaller], anyio_backend: str):
    first, second = sync_callers
    second.begin()
    for statement in ON_CALL:
        second.execute(statement)
    second.commit()

    def leave(caller: SyncCaller, doctor: str) -> None:
        caller.execute("select from on_call where is_there")
        caller.execute(f"update on_call set is_there = false where doctor = '{doctor}'")
        app.sync.schedule("note", id=f"{doctor} left", connection=caller.connection)

    with app.sync:
        for caller in (first, second):
            caller.begin()
            caller.execute(STRICTLY)
        leave(first, "a")
        leave(second, "b")
        second.commit()
        with pytest.raises(Exception, match=REFUSAL) as refused:
            first.commit()
        assert code_of(refused.value) == "40001"
        assert [action.id for action in app.sync.list()] == ["b left"]


async def test_callers_who_begin_again_until_they_are_let_pass_all_do_while_a_worker_runs(app: App):
    ran: list[int] = []

    @app.action("note")
    async def note(number: int) -> None:
        ran.append(number)

    refused: list[str | None] = []
    engine = async_engine(app.url, "asyncpg", isolation_level="SERIALIZABLE", pool_size=CALLERS)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("create table counter as select 0 as reached")

    async def count() -> None:
        for _ in range(TRIES_MAX):
            try:
                async with AsyncSession(engine) as session, session.begin():
                    connection = await session.connection()
                    result = await connection.exec_driver_sql("select reached from counter")
                    reached = int(result.scalar_one())
                    await connection.exec_driver_sql(f"update counter set reached = {reached + 1}")
                    # Under a name that all of them change, too.
                    await app.schedule("note", reached, id=f"n{reached}", connection=session)
                    await app.schedule("note", -1, id="last", connection=session)
            except DBAPIError as error:
                refused.append(code_of(error))
            else:
                return
        raise AssertionError(f"refused {TRIES_MAX} times")

    worker = Worker(app)
    async with anyio.create_task_group() as group:
        for _ in range(CALLERS):
            group.start_soon(count)
        for _ in range(CALLERS):
            await worker.run_due()
    await worker.run_due()
    await engine.dispose()
    assert set(refused) <= REFUSED
    assert refused
    assert sorted(number for number in ran if number >= 0) == list(range(CALLERS))
    assert -1 in ran
    assert {action.status.state for action in await app.list()} == {State.DONE}
