"""Failpoints: nothing of them is there without their variable; with it they strike once, at the step they name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import anyio
import pytest

from matrixsched import App, call
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import BadFailpoint, ConfigurationError
from matrixsched.store.failpoints import DELAY_S, VARIABLE, Deed, FailpointStore, Moment, Trap, parse_failpoint
from matrixsched.store.opening import open_store
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

URLS = {"sqlite://": SqliteStore, "postgresql://nobody@127.0.0.1:1/none": PostgresStore}


class Struck(BaseException):
    """The process would be dead from here on."""


def dying(deed: Deed) -> None:
    raise Struck(deed)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_stores_are_the_plain_ones(monkeypatch, url: str, value: str | None):
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    store = open_store(url)
    assert type(store) is URLS[url]
    assert type(store.sibling()) is URLS[url]


@pytest.mark.parametrize("url", URLS)
def test_with_the_variable_stores_and_their_siblings_share_the_trap(monkeypatch, url: str):
    monkeypatch.setenv(VARIABLE, "record:after:kill:2")
    store = open_store(url)
    assert isinstance(store, FailpointStore)
    sibling = store.sibling()
    assert isinstance(sibling, FailpointStore)
    assert sibling._trap is store._trap
    assert not store._trap.is_sprung_by("record")
    assert not sibling._trap.is_sprung_by("claim")
    assert sibling._trap.is_sprung_by("record")
    assert not store._trap.is_sprung_by("record")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("recrod:after:kill", "did you mean 'record'"),
        ("nonsense", "they are acquire_shard"),
        ("record", "has 1 parts"),
        ("record:after:kill:1:2", "has 5 parts"),
        ("record:during:kill", "neither before nor after"),
        ("record:after:maim", "none of kill, stop, exit, delay"),
        ("record:after:kill:0", "no number from 1 on"),
        ("record:after:kill:-1", "no number from 1 on"),
        ("record:after:kill:²", "no number from 1 on"),
        ("record:after:kill:" + "9" * 5000, "no number from 1 on"),
    ],
)
def test_a_bad_value_is_refused_with_what_to_write(monkeypatch, text: str, why: str):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(BadFailpoint, match=why) as refused:
        App("sqlite://")
    assert isinstance(refused.value, ConfigurationError)
    assert "<step>:<before|after>" in refused.value.remedy


def test_a_good_value_is_understood():
    failpoint = parse_failpoint("claim_gated:before:stop:12")
    assert (failpoint.step, failpoint.moment, failpoint.deed, failpoint.nth) == (
        "claim_gated",
        Moment.BEFORE,
        Deed.STOP,
        12,
    )


async def played(url: str, text: str, then: Callable[[App], object]) -> list[str]:
    """Whose calls come through until the process dies at the failpoint, and which actions there are afterwards."""
    plain = App(url, chance=SeededChance(1))
    await plain.init(shards=4)
    app = App(url, store=FailpointStore(open_store(url), Trap(parse_failpoint(text), strike=dying)))
    told: list[str] = []

    async def live() -> None:
        for number in range(3):
            await then(app)(number)
            told.append(f"told {number}")

    async with app:
        with pytest.raises(Struck):
            await live()
    async with plain:
        return told + [one.id for one in await plain.list()]


def scheduling(app: App):
    async def schedule(number: int) -> None:
        if number:
            await app.run_now("a")
        else:
            await app.schedule_many([call("anything", id="a"), call("anything", id="b")])

    return schedule


@pytest.mark.parametrize(("moment", "left"), [("before", []), ("after", ["a", "b"])])
async def test_before_is_before_the_commit_and_after_is_after_it(database_url: str, moment: str, left: list[str]):
    found = await played(database_url, f"schedule:{moment}:kill", scheduling)
    assert sorted(found) == left


async def test_it_strikes_at_the_nth_time(database_url: str):
    found = await played(database_url, "reschedule:after:exit:2", scheduling)
    assert sorted(found) == ["a", "b", "told 0", "told 1"]


async def test_what_is_one_transaction_has_done_everything_but_commit(database_url: str):
    """Whether before or after, a kill leaves no half of it; and on SQLite it dies with the lock of all writers."""
    app = App(database_url)
    await app.init(shards=4)
    done: list[str] = []
    async with app:
        store = FailpointStore(app.store, Trap(parse_failpoint("update_semaphore:before:kill"), strike=dying))
        await app.semaphores.get_or_create("pool", active=2)

        def change(present):
            done.append("asked what to change")
            return present

        with pytest.raises(Struck):
            await store.run(store.transitions.update_semaphore("pool", change, SeededChance(1).guid()))
        assert done
        assert (await app.semaphores.settings("pool")).active == 2


async def test_a_delay_is_waited_for(database_url: str):
    app = App(database_url)
    await app.init(shards=4)
    clock = ManualClock()
    async with app:
        store = FailpointStore(app.store, Trap(parse_failpoint("now:before:delay")), clock=clock)
        answers: list[object] = []

        async def ask() -> None:
            answers.append(await store.run(store.transitions.now()))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert not answers
            clock.advance(timedelta(seconds=DELAY_S))
        assert len(answers) == 1
