"""Callers' own transactions in a program that never connects by itself: it knows nothing of the installation before."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.errors import InsufficientPrivilege
from support.callers import ASYNC_KINDS, SYNC_KINDS, async_caller, sync_caller
from support.drivers import connect_psycopg
from support.queue_tasks import CONTRACT, Email

from matrixsched import App, Scheduled

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("distributed", [False, True], ids=["usual", "distributed"]),
]

ON_POSTGRESQL = [kind for kind, dialect in ASYNC_KINDS.items() if dialect == "postgresql"]
ON_POSTGRESQL_SYNC = [kind for kind, dialect in SYNC_KINDS.items() if dialect == "postgresql"]


@pytest.fixture
def url(postgres_dsn: str, distributed: bool) -> str:
    App(postgres_dsn).sync.init(shards=4, distributed=distributed)
    return postgres_dsn


def noted(url: str) -> int:
    """How many requests are where only the usual form looks for those about actions."""
    with connect_psycopg(url) as connection:
        (count,) = connection.execute("select count(*) from matrixsched.requests").fetchone()
    return count


def sent_again(url: str, id: str = "a") -> Scheduled:
    """By a program that does connect."""
    with App(url).sync as app:
        return app.schedule("note", id=id, request_id="once")


@pytest.mark.parametrize("kind", ON_POSTGRESQL)
async def test_a_request_takes_effect_once(url: str, kind: str, distributed: bool):
    app = App(url)
    async with async_caller(kind, url) as caller:
        await caller.begin()
        first = await app.schedule("note", id="a", request_id="once", connection=caller.connection)
        moved = await app.run_now("a", request_id="now", connection=caller.connection)
        await caller.commit()
    assert first.created
    assert moved.changed
    assert not sent_again(url).changed
    assert (noted(url) == 0) is distributed


@pytest.mark.parametrize("kind", ON_POSTGRESQL_SYNC)
def test_a_request_takes_effect_once_from_synchronous_code(url: str, kind: str, distributed: bool):
    app = App(url)
    with sync_caller(kind, url) as caller:
        caller.begin()
        first = app.sync.schedule("note", id="a", request_id="once", connection=caller.connection)
        moved = app.sync.run_now("a", request_id="now", connection=caller.connection)
        caller.commit()
    assert first.created
    assert moved.changed
    assert not app.sync.is_connected
    assert not sent_again(url).changed
    assert (noted(url) == 0) is distributed


def test_whatever_comes_first_reads_the_form(url: str):
    def enqueue(app: App, connection: Any) -> None:
        app.sync.semaphores.get_or_create("s", connection=connection).enqueue("t", connection=connection)

    def put(app: App, connection: Any) -> None:
        app.sync.queues.put(Email(to="ada"), connection=connection)

    for number, first in enumerate((enqueue, put)):
        app = App(url)
        app.queues.use(CONTRACT)
        with connect_psycopg(url) as connection:
            first(app, connection)
            assert app.sync.schedule("note", id=f"n{number}", request_id="once", connection=connection).created
        assert not sent_again(url, f"n{number}").changed


def test_what_cannot_be_read_is_an_error_and_no_form(url: str):
    app = App(url)
    with connect_psycopg(url, autocommit=True) as connection:
        connection.execute("create role of_no_rights")
        connection.execute("begin")
        connection.execute("set local role of_no_rights")
        with pytest.raises(InsufficientPrivilege):
            app.sync.schedule("note", id="a", request_id="once", connection=connection)
        connection.execute("rollback")
        connection.execute("drop role of_no_rights")
        with connection.transaction():
            assert app.sync.schedule("note", id="a", request_id="once", connection=connection).created
    assert not sent_again(url).changed
