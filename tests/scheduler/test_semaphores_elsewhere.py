"""Semaphores in the caller's own transaction, and from synchronous code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio.to_thread
import pytest
from support.callers import ASYNC_KINDS, SYNC_KINDS, async_caller, sync_caller

from matrixsched import Acquired, App
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


@pytest.mark.parametrize("kind", SYNC_KINDS)
async def test_also_in_a_synchronous_one(app: App, kind: str, database_url: str):
    def work() -> None:
        with sync_caller(kind, database_url) as caller:
            for end in (caller.rollback, caller.commit):
                caller.begin()
                pool = app.sync.semaphores.get_or_create("pool", active=1, connection=caller.connection)
                assert pool.enqueue_many([("a", 1), ("b", 2)], connection=caller.connection) == 2
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
        assert pool.release("a")
        assert pool.release_many(["b", "c"]) == 2
        assert app.sync.semaphores.update("pool", active=1).try_release == 1
        assert app.sync.semaphores.settings("pool").active == 1
        assert [one.key for one in app.sync.semaphores.list()] == ["pool"]
        assert app.sync.semaphores.get("pool").key == "pool"
        with pytest.raises(SemaphoreNotFound):
            app.sync.semaphores.get("other")
