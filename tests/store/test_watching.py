"""Whoever watches a store hears of what is written from the first moment on, also of what came just before it."""

from __future__ import annotations

import gc

import anyio
import anyio.lowlevel
import pytest

from matrixsched import App
from matrixsched.queues import parse_contract
from matrixsched.store.news import News, news_of
from matrixsched.store.opening import open_store

pytestmark = pytest.mark.anyio

DEADLINE_S = 30


@pytest.fixture(params=["file", "memory", "server"])
def watched_url(request: pytest.FixtureRequest, tmp_path) -> str:
    match request.param:
        case "file":
            return f"sqlite:///{tmp_path}/test.db"
        case "memory":
            return "sqlite://"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


async def test_watching_begins_with_a_wake_up_for_what_was_written_before(watched_url):
    app = App(watched_url)
    await app.init(shards=1)
    async with app, anyio.create_task_group() as group:
        told = anyio.Event()
        group.start_soon(app.store.watch, lambda news: told.set())
        with anyio.fail_after(DEADLINE_S):
            await told.wait()
        group.cancel_scope.cancel()


async def test_postgresql_tells_what_news_are_of_so_that_nobody_else_looks(postgres_dsn: str):
    app = App(postgres_dsn)
    app.queues.use(parse_contract("queues: [{id: 1, name: emails, fields: [{name: to, type: string}]}]"))
    app.action("send")(lambda: None)
    await app.init(shards=1)
    send, receive = anyio.create_memory_object_stream[News](100)
    async with app, send, receive, anyio.create_task_group() as group:
        group.start_soon(app.store.watch, send.send_nowait)
        storage = app.queues.storage_over(app.store)
        with anyio.fail_after(DEADLINE_S):
            assert await receive.receive() == News.ANYTHING
            await app.schedule("send")
            assert await receive.receive() == News.ACTIONS
            await storage.put(1, b"")
            assert await receive.receive() == News.QUEUES
            await storage.pause(1)
            await storage.resume(1)
            assert await receive.receive() == News.QUEUES
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("payload", "news"), [("actions", News.ACTIONS), ("queues", News.QUEUES), ("", News.ANYTHING), ("x", News.ANYTHING)]
)
def test_what_other_releases_tell_may_be_of_anything(payload: str, news: News):
    assert news_of(payload) is news


async def test_watching_can_end_at_any_moment_without_a_trace(watched_url):
    app = App(watched_url)
    await app.init(shards=1)
    async with app:
        for moments in range(30):
            async with anyio.create_task_group() as group:
                group.start_soon(app.store.watch, lambda news: None)
                for _ in range(moments):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
    await hear_of_errors_left_behind()


async def test_connecting_can_end_at_any_moment_without_a_trace(watched_url):
    await App(watched_url).init(shards=1)
    for moments in range(30):
        store = open_store(watched_url)
        async with anyio.create_task_group() as group:
            group.start_soon(store.open)
            for _ in range(moments):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await store.close()
    await hear_of_errors_left_behind()


async def hear_of_errors_left_behind() -> None:
    """An error that nobody awaits is told when it is collected, and fails the test."""
    gc.collect()
    await anyio.lowlevel.checkpoint()
