"""A database URL may name several servers, of which one takes writes; and one that does may stop to."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
import anyio.lowlevel
import psycopg
import pytest
from support.pair import configure
from support.postgres import PostgresServer, free_port, start_postgres

from matrixsched import App, Context
from matrixsched.errors import BadDatabaseUrl, DatabaseUnavailable
from matrixsched.events import StepFailed
from matrixsched.store.news import News
from matrixsched.store.postgresql import store as postgresql
from matrixsched.store.transition import Transition
from matrixsched.worker import Worker
from matrixsched.worker.policy import WorkerPolicy

pytestmark = pytest.mark.anyio

DEADLINE_S = 20
WRITABLE = "target_session_attrs=read-write"


def nobody() -> str:
    return f"127.0.0.1:{free_port()}"


@contextmanager
def silent() -> Iterator[str]:
    """Where connections are taken and nothing is said, as by a machine that stands still."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def of(dsn: str, *others: str, last: str = "") -> str:
    """The URL of the database, at other places too."""
    parts = urlsplit(dsn)
    user, _, address = parts.netloc.rpartition("@")
    hosts = ",".join((*others, address, *filter(None, [last])))
    return parts._replace(netloc=f"{user}@{hosts}", query=WRITABLE).geturl()


async def works(url: str) -> None:
    app = App(url)
    with anyio.fail_after(DEADLINE_S):
        await app.init(shards=1)
        async with app:
            await app.schedule("send", id="a")


@pytest.mark.parametrize(
    "write",
    [
        lambda dsn: of(dsn, nobody()),
        lambda dsn: of(dsn, nobody(), last=nobody()),
        lambda dsn: of(dsn, last=nobody()),
        lambda dsn: as_options(of(dsn, nobody()), lambda hosts: "&".join(f"host={one}" for one in hosts)),
        lambda dsn: as_options(of(dsn, nobody()), lambda hosts: f"host={','.join(hosts)}"),
        lambda dsn: as_options(
            of(dsn, nobody()),
            lambda hosts: (
                "host=" + ",".join(h.split(":")[0] for h in hosts) + "&port=" + ",".join(h.split(":")[1] for h in hosts)
            ),
        ),
    ],
    ids=["dead first", "dead around", "dead last", "as for SQLAlchemy", "in one option", "as for libpq"],
)
@pytest.mark.direct("its URLs name servers, and no pooler")
async def test_the_one_that_is_there_is_found(postgres_dsn: str, write: Callable[[str], str]) -> None:
    await works(write(postgres_dsn))


def as_options(url: str, write: Callable[[list[str]], str]) -> str:
    parts = urlsplit(url)
    user, _, hosts = parts.netloc.rpartition("@")
    return f"postgresql+asyncpg://{user}@{parts.path}?{write(hosts.split(','))}&{parts.query}"


@pytest.mark.direct("its URLs name servers, and no pooler")
async def test_one_that_is_silent_does_not_use_up_the_time_of_the_others(postgres_dsn: str) -> None:
    with silent() as hole:
        await works(of(postgres_dsn, hole))


async def test_all_of_them_are_named_where_none_answers() -> None:
    hosts = [nobody(), nobody()]
    for url in (
        f"postgresql://u@{','.join(hosts)}/db?{WRITABLE}",
        f"postgresql://u@/db?{WRITABLE}&host={hosts[0]}&host={hosts[1]}",
    ):
        with pytest.raises(DatabaseUnavailable, match=",".join(hosts)):
            await App(url).store.open()


@pytest.mark.parametrize("target", ["readwrite", "master", "any,"])
def test_a_target_that_nobody_knows_is_refused(target: str) -> None:
    with pytest.raises(BadDatabaseUrl, match="must be one of any, primary, standby"):
        App(f"postgresql://u@a,b/db?target_session_attrs={target}")


# A server that takes no more writes.


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with start_postgres() as server:
        yield server


ITS_OWN_SERVER = pytest.mark.direct("it is the server that stops to take writes")

SHORT_LEASES = WorkerPolicy(
    shard_lease=timedelta(seconds=2),
    attempt_lease=timedelta(seconds=2),
    heartbeat=timedelta(seconds=0.5),
    lease_margin=timedelta(seconds=0.5),
)


class Demotion:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def begin(self) -> None:
        configure(self._server, "default_transaction_read_only", "on")

    def end(self) -> None:
        configure(self._server, "default_transaction_read_only", "off")

    def sessions(self) -> set[int]:
        """Those of stores."""
        with psycopg.connect(self._server.admin_dsn) as connection:
            rows = connection.execute("select pid from pg_stat_activity where application_name = 'matrixsched'")
            return {pid for (pid,) in rows.fetchall()}


@pytest.fixture
def demotion(server: PostgresServer) -> Iterator[Demotion]:
    demotion = Demotion(server)
    yield demotion
    demotion.end()


@pytest.fixture(params=["", f"?{WRITABLE}"], ids=["any", "read-write"])
async def app(server: PostgresServer, request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[App]:
    app = App(f"{server.admin_dsn}{request.param}")
    await app.init(shards=1)
    async with app:
        yield app


async def refused(app: App) -> None:
    """Write until the server has heard that it takes no writes."""
    with anyio.fail_after(DEADLINE_S), pytest.raises(DatabaseUnavailable):
        await write_on(app)


async def write_on(app: App) -> None:
    while True:
        await app.schedule("send")


async def run_again_and_again(app: App, transition: Transition[Any]) -> None:
    while True:
        await app.store.run(transition)


async def look_at_once(app: App, count: int) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(app.store.run, app.store.transitions.now())


async def until(holds: Callable[[], object]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while not holds():
            await anyio.lowlevel.checkpoint()


@pytest.mark.postgresql
@ITS_OWN_SERVER
async def test_after_the_first_refusal_every_connection_is_given_up(app: App, demotion: Demotion) -> None:
    await look_at_once(app, 4)
    before = demotion.sessions()
    demotion.begin()
    await refused(app)
    await until(lambda: not before & demotion.sessions())
    assert len(before) == 4
    assert app.store.pool.open == 0
    demotion.end()
    await app.schedule("send")
    await look_at_once(app, 4)


@pytest.mark.postgresql
@ITS_OWN_SERVER
async def test_a_server_that_takes_writes_only_later_is_not_connected_to(
    server: PostgresServer, demotion: Demotion
) -> None:
    app = App(f"{server.admin_dsn}?{WRITABLE}")
    demotion.begin()
    with pytest.raises(DatabaseUnavailable, match="none is of the kind that target_session_attrs asks for"):
        await app.store.open()
    demotion.end()
    await app.store.open()
    await app.store.close()


class Ear:
    def __init__(self) -> None:
        self.beginnings = 0

    def __call__(self, news: News, shard: int | None = None) -> None:
        self.beginnings += news is News.ANYTHING


@pytest.mark.postgresql
@ITS_OWN_SERVER
async def test_whoever_listens_there_goes_elsewhere_when_another_is_refused(app: App, demotion: Demotion) -> None:
    heard = Ear()
    async with anyio.create_task_group() as group:
        group.start_soon(app.store.watch, heard)
        await until(lambda: heard.beginnings == 1)
        before = demotion.sessions()
        demotion.begin()
        await refused(app)
        await until(lambda: not before & demotion.sessions())
        demotion.end()
        await until(lambda: heard.beginnings >= 2)
        group.cancel_scope.cancel()


@pytest.mark.postgresql
@ITS_OWN_SERVER
async def test_whoever_only_listens_there_notices_by_looking(
    app: App, demotion: Demotion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "LISTENER_LOOKS_EVERY_S", 0.05)
    heard = Ear()
    async with anyio.create_task_group() as group:
        group.start_soon(app.store.watch, heard)
        await until(lambda: heard.beginnings == 1)
        before = demotion.sessions()
        demotion.begin()
        await until(lambda: not before & demotion.sessions())
        demotion.end()
        await until(lambda: heard.beginnings >= 2)
        group.cancel_scope.cancel()


@pytest.mark.postgresql
@ITS_OWN_SERVER
@pytest.mark.parametrize("distributed", [False, True], ids=["usual", "distributed"])
async def test_whoever_looks_for_work_there_and_finds_none_notices(
    server: PostgresServer, demotion: Demotion, distributed: bool
) -> None:
    app = App(server.admin_dsn, installation=f"distributed_{distributed}".lower())
    await app.init(shards=1, distributed=distributed)
    async with app:
        do = app.store.transitions
        looking = do.acquire_shard(sync_guid=uuid4(), holder="w", lease=timedelta(seconds=10), lanes=())
        assert (await app.store.run(looking)).shard is None
        demotion.begin()
        with anyio.fail_after(DEADLINE_S), pytest.raises(DatabaseUnavailable, match="read-only"):
            await run_again_and_again(app, looking)
        assert app.store.pool.open == 0
        assert await app.list() == []  # who only wants to read may


@pytest.mark.postgresql
@ITS_OWN_SERVER
async def test_a_worker_claims_nothing_meanwhile_and_counts_no_attempt(app: App, demotion: Demotion) -> None:
    attempts = list[tuple[int, int]]()
    ran, failed = anyio.Event(), anyio.Event()

    @app.action("work")
    async def work(context: Context) -> None:
        attempts.append((context.attempt, context.failures))
        ran.set()

    app.on(StepFailed)(lambda _: failed.set())
    with anyio.fail_after(DEADLINE_S):
        async with Worker(app, SHORT_LEASES):
            await app.schedule("work", id="a", delay=timedelta(seconds=0.5))
            demotion.begin()
            await failed.wait()
            assert not attempts
            demotion.end()
            await ran.wait()
    assert attempts == [(1, 0)]
    status = (await app.get("a")).status
    assert (status.succeeded, status.failed, status.interrupted) == (1, 0, 0)
