"""Whoever watches a store hears of what is written from the first moment on, also of what came just before it."""

from __future__ import annotations

import gc

import anyio
import anyio.lowlevel
import pytest

from matrixsched import App, call
from matrixsched.queues import parse_contract
from matrixsched.rules.names import shard_of
from matrixsched.store.news import News, tell
from matrixsched.store.opening import open_store

pytestmark = pytest.mark.anyio

DEADLINE_S = 30


@pytest.fixture(params=["file", "memory", "postgresql"])
def watched_url(request: pytest.FixtureRequest, tmp_path) -> str:
    match request.param:
        case "file":
            return f"sqlite:///{tmp_path}/test.db"
        case "memory":
            return "sqlite://"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


@pytest.mark.direct("LISTEN needs a session")
async def test_watching_begins_with_a_wake_up_for_what_was_written_before(watched_url):
    app = App(watched_url)
    await app.init(shards=1)
    async with app, anyio.create_task_group() as group:
        told = anyio.Event()
        group.start_soon(app.store.watch, lambda *_: told.set())
        with anyio.fail_after(DEADLINE_S):
            await told.wait()
        group.cancel_scope.cancel()


@pytest.mark.direct("LISTEN needs a session")
async def test_postgresql_tells_what_news_are_of_so_that_nobody_else_looks(postgres_dsn: str):
    app = App(postgres_dsn)
    app.queues.use(parse_contract("queues: [{id: 1, name: emails, fields: [{name: to, type: string}]}]"))
    app.action("send")(lambda: None)
    await app.init(shards=1)
    send, receive = anyio.create_memory_object_stream[News](100)
    async with app, send, receive, anyio.create_task_group() as group:
        group.start_soon(app.store.watch, lambda news, _=None: send.send_nowait(news))
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
    assert heard(payload) == (news, None)


def test_news_of_actions_may_name_the_only_shard_they_are_in():
    assert heard("actions:17") == (News.ACTIONS, 17)
    assert heard("actions:x") == (News.ACTIONS, None)


def heard(payload: str) -> tuple[News, int | None]:
    told = list[tuple[News, int | None]]()

    def hear(news: News, shard: int | None = None) -> None:
        told.append((news, shard))

    tell(hear, payload)
    (one,) = told
    return one


@pytest.mark.direct("LISTEN needs a session")
async def test_postgresql_tells_the_shard_of_new_actions_if_it_is_one(postgres_dsn: str):
    app = App(postgres_dsn)
    await app.init(shards=4)
    send, receive = anyio.create_memory_object_stream[int | None](100)

    def hear(news: News, shard: int | None = None) -> None:
        send.send_nowait(shard)

    async with app, send, receive, anyio.create_task_group() as group:
        group.start_soon(app.store.watch, hear)
        with anyio.fail_after(DEADLINE_S):
            assert await receive.receive() is None
            await app.schedule("send", id="a")
            assert await receive.receive() == shard_of("a", 4)
            await app.schedule_many(call("send", number) for number in range(100))
            assert await receive.receive() is None
        group.cancel_scope.cancel()


async def test_watching_can_end_at_any_moment_without_a_trace(watched_url):
    app = App(watched_url)
    await app.init(shards=1)
    async with app:
        for moments in range(30):
            async with anyio.create_task_group() as group:
                group.start_soon(app.store.watch, lambda *_: None)
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
