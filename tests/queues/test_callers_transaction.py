"""Tasks are put in the caller's own transaction, with every library we promise to work with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio.to_thread
import pytest
from support.callers import ASYNC_KINDS, SYNC_KINDS, async_caller, sync_caller
from support.queues import opened, storage_of

from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput
from matrixsched.queues.inside import StoreInside
from matrixsched.rules.queues import NewItem
from matrixsched.store import queues as store_queues
from matrixsched.store.callers import run_in_sync
from matrixsched.store.store import Store

pytestmark = pytest.mark.anyio

DATAS = [b"", b"\x00\xff", b"100%", b"x" * 3_000]


@pytest.fixture
def queues_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    dialect = ASYNC_KINDS.get(kind) or SYNC_KINDS[kind]
    return f"sqlite:///{tmp_path}/test.db" if dialect == "sqlite" else request.getfixturevalue("queues_dsn")


@pytest.fixture
async def store(queues_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Store]:
    async with opened(queues_url, clock) as store:
        yield store


def items(clock: ManualClock) -> list[NewItem]:
    later = NewItem(queue=2, data=b"later", at=clock.now() + timedelta(days=1))
    return [*(NewItem(queue=1, data=data) for data in DATAS), later]


@pytest.mark.parametrize("kind", ASYNC_KINDS)
async def test_what_is_put_in_a_callers_transaction_is_there_when_it_commits(
    store: Store, kind: str, queues_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store_queues, "PUT_TASKS_MAX", 2)
    storage = storage_of(store)
    async with async_caller(kind, queues_url) as caller:
        inside = storage_of(StoreInside(store, caller.connection))
        for end in (caller.rollback, caller.commit):
            await caller.begin()
            ids = await inside.put_many(items(clock))
            one = await inside.put(1, b"one", delay=timedelta(0))
            await end()
            if end == caller.rollback:
                assert await storage.stat() == {}
    tasks = await storage.get(1, 9)
    assert [(task.id, task.data) for task in tasks] == list(zip([*ids[:4], one], [*DATAS, b"one"], strict=True))
    assert (await storage.stat())[2].delayed == 1


@pytest.mark.parametrize("kind", ["aiosqlite", "asyncpg", "psycopg"])
async def test_a_connection_without_a_transaction_is_refused(store: Store, kind: str, queues_url: str):
    storage = storage_of(store)
    async with async_caller(kind, queues_url) as caller:
        with pytest.raises(BadInput, match="no transaction is open"):
            await storage_of(StoreInside(store, caller.connection)).put(1, b"a")
    assert await storage.stat() == {}


@pytest.mark.parametrize("kind", SYNC_KINDS)
async def test_also_in_a_synchronous_transaction(store: Store, kind: str, queues_url: str, clock: ManualClock):
    storage = storage_of(store)
    putting = store.transitions.put_tasks(items(clock), storage._guid(), tell=True)

    def put() -> list[int]:
        with sync_caller(kind, queues_url) as caller:
            caller.begin()
            ids = run_in_sync(caller.connection, store.dialect, putting)
            caller.commit()
            return ids

    ids = await anyio.to_thread.run_sync(put)
    assert [(task.id, task.data) for task in await storage.get(1, 9)] == list(zip(ids[:4], DATAS, strict=True))
