"""The proxy, and what the library makes of a network that is as bad as it can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import asyncpg
import pytest

from chaos.nemeses import absent, least_tried
from chaos.proxy import Lost, Proxy, Requests, message
from matrixsched import App
from matrixsched.errors import DatabaseUnavailable
from matrixsched.store.postgresql.connection import BEGIN
from matrixsched.store.statements import Statement, load, load_distributed, statement

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.direct("the proxy reads what servers say, and knows clients by what they say to one"),
]


@pytest.fixture
def proxy(postgres_dsn: str) -> Iterator[Proxy]:
    parts = urlsplit(postgres_dsn)
    with Proxy(parts.hostname or "", parts.port or 0) as running:
        yield running


@pytest.fixture
async def app(proxy: Proxy, postgres_dsn: str):
    """An application behind the proxy."""
    await App(postgres_dsn).init(shards=4)
    parts = urlsplit(postgres_dsn)
    url = parts._replace(netloc=f"postgres@127.0.0.1:{proxy.port}", query="chaos.writer=c1").geturl()
    async with App(url) as app:
        yield app


async def losing(proxy: Proxy, kind: str, calling, *, reset: bool) -> tuple[object, Lost | None]:
    """What a call answers of whose commit the first answer is lost; and what was lost."""
    found: list[Lost | None] = []

    async def lose() -> None:
        wish = partial(proxy.lose_answer, [kind], skip=0, reset=reset, within_s=10)
        found.append(await anyio.to_thread.run_sync(wish))

    async with anyio.create_task_group() as group:
        group.start_soon(lose)
        with anyio.fail_after(10):
            while not proxy._wishes:  # noqa: ASYNC110  # it is in another thread
                await anyio.sleep(0.001)
        answer = await calling()
    return answer, found[0]


async def attempted(app: App) -> bool:
    """Whether a call was carried out; it may only fail in the library's own words."""
    try:
        return (await app.schedule("remind", id="tea")).created
    except DatabaseUnavailable:
        return False


async def told_goodbye(app: App, proxy: Proxy) -> asyncpg.Connection:
    """The connection of the pool, after the server has said to it that it will end it, and before it does."""
    (link,) = proxy.links()
    pool = app.store._pool  # type: ignore[attr-defined]
    (connection,) = [holder._con for holder in pool._holders if holder._con is not None]
    heard = anyio.Event()

    def hear(*_: object) -> None:
        heard.set()

    connection.add_log_listener(hear)
    proxy.say_goodbye(link)
    with anyio.fail_after(10):
        await heard.wait()
    connection.remove_log_listener(hear)
    return connection


@pytest.mark.parametrize("reset", [False, True])
async def test_a_call_whose_answer_is_lost_is_known_to_have_been_carried_out(app: App, proxy: Proxy, reset: bool):
    answer, lost = await losing(proxy, "schedule", lambda: app.schedule("remind", id="tea"), reset=reset)
    assert lost is not None
    assert (lost.writer, lost.what) == ("c1", "schedule")
    assert (answer.created, answer.changed) == (True, True)
    again, lost = await losing(proxy, "cancel", lambda: app.cancel("tea"), reset=reset)
    assert lost is not None
    assert (again.created, again.changed) == (False, True)


async def test_the_answer_to_the_commit_of_a_transaction_is_lost(app: App, proxy: Proxy):
    pool = await app.semaphores.get_or_create("pool", active=3)
    await pool.enqueue("a")

    async def balance() -> object:
        with pytest.raises(Exception, match="the connection to PostgreSQL .* broke"):
            await app.store.run(app.store.transitions.balance("pool", app.chance.guid, shards=4))
        return (await pool.statistics()).held

    answer, lost = await losing(proxy, "balance", balance, reset=False)
    assert lost is not None
    assert (lost.what, answer) == ("balance", 1)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_is_cut_is_no_harm(app: App, proxy: Proxy, reset: bool):
    for number in range(3):
        for link in proxy.links():
            proxy.cut(link, reset=reset)
        assert (await app.schedule("remind", id=f"tea {number}")).created


async def test_what_a_server_says_to_an_idle_connection_before_it_ends_it_is_no_harm(app: App, proxy: Proxy):
    """The words may come in one packet and the end in another, and a call in between."""
    connection = await told_goodbye(app, proxy)
    assert (await app.schedule("remind", id="tea")).created
    assert connection.is_closed()


@pytest.mark.parametrize("turned_away", [1, 3])
async def test_whoever_listens_tries_again_when_the_server_shuts_down_at_that_moment(
    app: App, proxy: Proxy, turned_away: int
):
    """Of an error that it does not expect, the whole worker would end."""
    heard = anyio.Event()
    proxy.turn_away(turned_away)
    async with anyio.create_task_group() as group:
        group.start_soon(app.store.watch, lambda news: heard.set())
        with anyio.fail_after(10):
            await heard.wait()
        group.cancel_scope.cancel()
    assert proxy.unwelcome == 0


async def test_calls_are_carried_out_although_their_connections_are_turned_away(app: App, proxy: Proxy):
    for link in proxy.links():
        proxy.cut(link)
    proxy.turn_away(2)
    with anyio.fail_after(10):
        while not (await attempted(app)):
            pass
    assert proxy.unwelcome == 0


async def test_closing_is_no_error_after_the_server_has_said_goodbye(proxy: Proxy, app: App):
    connection = await told_goodbye(app, proxy)
    await app.store.close()
    assert connection.is_closed()


async def test_a_black_hole_is_left_when_patience_ends(app: App, proxy: Proxy):
    (link,) = proxy.links()
    assert link.writer == "c1"
    assert link.answers.backend is not None
    proxy.black_hole(link)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(app.schedule, "remind", id="tea"))
        await anyio.sleep(0.05)
        proxy.cut(link)
        proxy.open_again(link)
    assert (await app.get("tea")).id == "tea"


def test_only_writing_statements_outside_of_transactions_and_commits_are_commits():
    bind, sync = message(b"B", b"\0one\0" + b"\0" * 6), message(b"S", b"")
    write, read = parsed("beat_shard"), parsed("find")
    begin, commit = message(b"Q", BEGIN.encode() + b"\0"), message(b"Q", b"commit\0")
    requests = Requests()
    assert requests.read(write + sync) is None
    assert requests.read(bind + sync) == "beat_shard"
    assert requests.read(begin) is None
    assert requests.read(bind + sync) is None
    assert requests.read(commit[:3]) is None
    assert requests.read(commit[3:]) == "beat_shard"
    assert requests.read(read + sync) is None
    assert requests.read(bind + sync) is None
    assert requests.read(begin + bind + sync) is None
    assert requests.read(commit) is None


def test_a_claim_is_told_from_a_record_and_from_one_before_a_gate():
    bind, sync = message(b"B", b"\0one\0" + b"\0" * 6), message(b"S", b"")
    begin, commit = message(b"Q", b"BEGIN;\0"), message(b"Q", b"COMMIT;\0")
    requests = Requests()
    for kind in ("claim", "move", "record", "extend", "release_shard", "take_tasks"):
        assert requests.read(parsed(kind) + bind + sync) == kind
    assert requests.read(parsed("end_chore") + bind + sync) == "chores"
    for name in ("count_held", "claim", "spend"):
        requests.read(begin if name == "count_held" else b"")
        assert requests.read(parsed(name) + bind + sync) is None
    assert requests.read(commit) == "claim_gated"


def test_what_a_transaction_begins_with_in_distributed_form_is_not_what_it_is_about():
    bind, sync = message(b"B", b"\0one\0" + b"\0" * 6), message(b"S", b"")
    begin, commit = message(b"Q", b"BEGIN;\0"), message(b"Q", b"COMMIT;\0")
    types = statement("postgresql", "default", "types", "select a question of the driver")
    statements, requests = load_distributed("default") | {"types": types}, Requests()
    for names, kind in (
        (("patience", "now", "schedule.write", "schedule.write", "tell"), "schedule"),
        (("patience", "record", "unblock", "record"), "record"),
        (("now", "count_held", "claim", "spend.slots"), "claim_gated"),
        (("now", "patience"), None),
        (("patience", "types", "schedule.write"), "schedule"),
    ):
        requests.read(begin)
        assert [requests.read(parsed(name, statements) + bind + sync) for name in names] == [None] * len(names)
        assert requests.read(commit) == kind
    for name, kind in (("now", None), ("acquire_shard.look", None), ("acquire_shard.take", "acquire_shard")):
        assert requests.read(parsed(name, statements) + bind + sync) == kind


def parsed(name: str, statements: Mapping[str, Statement] | None = None) -> bytes:
    """One of our statements, as a client sends it."""
    text = (statements or load("postgresql", "default"))[name].positional
    return message(b"P", b"one\0" + text.encode() + b"\0\0\0")


def test_answers_are_lost_to_all_kinds_of_commits_also_to_rare_ones():
    commits = Counter({"beat_shard": 5000, "record": 900, "balance": 3, "plan_window": 1})
    tried, lots = Counter[str](), Random(1)
    for _ in range(40):
        turns = least_tried(commits, tried)
        (next_to_come,) = lots.choices(turns, [commits[kind] for kind in turns])
        tried[next_to_come] += 1
    assert tried == dict.fromkeys(commits, 10)
    assert least_tried(Counter(), tried) == []


def test_a_kind_that_does_not_come_is_passed_over_unless_the_database_is_away():
    assert absent(["balance", "plan_window"], Counter(balance=1, record=30)) == ["plan_window"]
    assert absent(["balance", "plan_window"], Counter(record=3)) == []
