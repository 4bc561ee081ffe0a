"""Semaphores in the caller's own transaction, and from synchronous code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from support.callers import ASYNC_KINDS, SYNC_KINDS, async_caller, sync_caller

from matrixsched import Acquired, App, SemaphoreBalance
from matrixsched.errors import BadInput, SemaphoreNotFound, TaskNotFound
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def database_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    dialect = ASYNC_KINDS.get(kind) or SYNC_KINDS[kind]
    return f"sqlite:///{tmp_path}/test.db" if dialect == "sqlite" else request.getfixturevalue("postgres_dsn")


@pytest.fixture
async def app(database_url: str, anyio_backend: str) -> AsyncIterator[App]:
    app = App(database_url)

    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None: ...

    await app.init(shards=4)
    async with app:
        yield app


@pytest.mark.parametrize("kind", ASYNC_KINDS)
async def test_what_happens_in_a_callers_transaction_happens_with_it(app: App, kind: str, database_url: str):
    async with async_caller(kind, database_url) as caller:
        for end in (caller.rollback, caller.commit):
            await caller.begin()
            pool = await app.semaphores.get_or_create("pool", active=1, connection=caller.connection)
            assert await pool.enqueue_many({"a": 1, "b": 2}, connection=caller.connection) == 2
            assert await pool.release("b", connection=caller.connection)
            assert [task.id for task in await pool.waiting(connection=caller.connection)] == ["a"]
            await end()
            if end == caller.rollback:
                with pytest.raises(SemaphoreNotFound):
                    await app.semaphores.get("pool")
    await Worker(app).run_due()
    assert [task.id for task in await pool.holders()] == ["a"]


GIVEN = [f"task-{n}" for n in range(1_500, 0, -1)]


@pytest.mark.parametrize("kind", ASYNC_KINDS)
async def test_thousands_stand_in_the_order_given_though_written_in_another(app: App, kind: str, database_url: str):
    pool = await app.semaphores.get_or_create("pool", active=1)
    async with async_caller(kind, database_url) as caller:
        await caller.begin()
        assert await pool.enqueue_many(((id, 1) for id in GIVEN), connection=caller.connection) == 1_500
        await caller.commit()
    assert [task.id for task in await pool.waiting(2_000)] == GIVEN


@pytest.mark.parametrize("kind", SYNC_KINDS)
def test_also_in_a_synchronous_transaction(app: App, kind: str, database_url: str):
    with app.sync, sync_caller(kind, database_url) as caller:
        pool = app.sync.semaphores.get_or_create("pool", active=1)
        caller.begin()
        assert pool.enqueue_many(((id, 1) for id in GIVEN), connection=caller.connection) == 1_500
        caller.commit()
        assert [task.id for task in pool.waiting(2_000)] == GIVEN


@pytest.mark.parametrize("kind", ["asyncpg"])
async def test_a_balance_says_that_somebody_else_is_at_it(app: App, kind: str, database_url: str):
    pool = await app.semaphores.get_or_create("pool", active=1)
    await pool.enqueue("a", 1)
    async with async_caller(kind, database_url) as caller:
        await caller.begin()
        await app.semaphores.update("pool", active=2, connection=caller.connection)
        assert await pool.balance() is None
        await caller.commit()
    assert await pool.balance() == SemaphoreBalance(acquired=1, asked=0)


# Two transactions that change the same two thousand tasks, the one from a on, the other from b on.

A, B = [f"a-{n:04}" for n in range(1_000)], [f"b-{n:04}" for n in range(1_000)]
Change = Callable[[list[str], Any], Awaitable[object]]


@pytest.mark.read_committed("of two strict transactions that change the same rows one is refused, and begun again")
@pytest.mark.parametrize("kind", ["asyncpg"])
async def test_two_transactions_that_change_the_same_thousands_do_not_deadlock(app: App, kind: str, database_url: str):
    pool = await app.semaphores.get_or_create("pool", active=2_000)
    await pool.enqueue_many((id, 0) for id in [*A, *B])
    await pool.balance()

    async def enqueue(ids: list[str], connection: Any) -> None:
        assert await pool.enqueue_many([(id, ord(ids[0][0])) for id in ids], connection=connection) == 0

    async def renew(ids: list[str], connection: Any) -> None:
        assert await pool.renew_many(ids, connection=connection) == 2_000

    async def release(ids: list[str], connection: Any) -> None:
        await pool.release_many(ids, missing_ok=True, connection=connection)

    for change in (enqueue, renew, release):
        await from_both_ends(database_url, change)
    assert (await pool.statistics()).held == 0


async def from_both_ends(database_url: str, change: Change) -> None:
    """Somebody has the last a and the last b in hand until both wait."""

    async def work(ids: list[str]) -> None:
        async with async_caller("asyncpg", database_url) as caller:
            await caller.begin()
            await change(ids, caller.connection)
            await caller.commit()

    async with async_caller("asyncpg", database_url) as between, anyio.create_task_group() as both:
        await between.begin()
        await between.execute(
            "select from matrixsched.semaphore_tasks where task_id in ('a-0999', 'b-0999') order by task_id for update"
        )
        both.start_soon(work, [*A, *B])
        both.start_soon(work, [*B, *A])
        await until_two_wait(between.connection)
        await between.rollback()


async def until_two_wait(connection: Any) -> None:
    waiting = "select count(*) from pg_locks where not granted and pid <> pg_backend_pid()"
    with anyio.fail_after(10):
        while await connection.fetchval(waiting) < 2:  # noqa: ASYNC110 - the server is asked; it tells nobody
            await anyio.sleep(0.002)


@pytest.mark.parametrize("kind", SYNC_KINDS)
async def test_also_in_a_synchronous_one(app: App, kind: str, database_url: str):
    def work() -> None:
        with sync_caller(kind, database_url) as caller:
            for end in (caller.rollback, caller.commit):
                caller.begin()
                pool = app.sync.semaphores.get_or_create("pool", active=1, connection=caller.connection)
                assert pool.enqueue_many([("a", 1), ("b", 2)], connection=caller.connection) == 2
                assert not pool.step_back("b", connection=caller.connection)
                assert pool.release("b", connection=caller.connection)
                with pytest.raises(TaskNotFound):
                    pool.release("b", connection=caller.connection)
                with pytest.raises(BadInput, match="priority"):
                    pool.enqueue("c", float("nan"), connection=caller.connection)
                assert app.sync.semaphores.update("pool", 3, connection=caller.connection).active == 3
                end()

    await anyio.to_thread.run_sync(work)
    await Worker(app).run_due()
    assert [task.id for task in await (await app.semaphores.get("pool")).holders()] == ["a"]


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg"])
def test_synchronous_code_has_all_of_it(kind: str, database_url: str):
    app = App(database_url)
    app.sync.init(shards=4)
    with app.sync:
        pool = app.sync.semaphores.get_or_create("pool", active=2, try_release=1)
        assert pool.enqueue("a", 1)
        assert not pool.enqueue("a", 2)
        assert pool.enqueue_many({"b": 3, "c": 1}) == 2
        assert [task.id for task in pool.waiting()] == ["b", "a", "c"]
        assert (pool.position("c"), pool.get("c").priority, pool.holders()) == (2, 1.0, [])
        assert pool.statistics().waiting == 3
        assert not pool.renew("a")
        assert pool.renew_many(["a", "b"]) == 0
        assert not pool.step_back("a")
        assert pool.release("a")
        assert pool.release_many(["b"]) == 1
        assert pool.balance() == SemaphoreBalance(acquired=1, asked=0)
        assert pool.renew_many(["c"]) == 1
        assert pool.release_many(["c"]) == 1
        assert app.sync.semaphores.update("pool", active=1).try_release == 1
        assert app.sync.semaphores.settings("pool").active == 1
        assert [one.key for one in app.sync.semaphores.list()] == ["pool"]
        assert app.sync.semaphores.get("pool").key == "pool"
        with pytest.raises(SemaphoreNotFound):
            app.sync.semaphores.get("other")
