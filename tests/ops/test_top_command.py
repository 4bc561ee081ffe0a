"""`matrixsched top`: frames that fit, on a terminal and where there is none, also while the database is away."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.command import Matrixsched, on
from support.postgres import start_postgres
from support.terminal import on_a_terminal

from matrixsched import App
from matrixsched.ops.queues import storage_of
from matrixsched.ops.top.frame import frame, shares
from matrixsched.ops.top.looking import Look, look
from matrixsched.worker import Worker

SECOND = timedelta(seconds=1)


async def busy(app: App) -> None:
    """Three actions done, one due, one before a closed gate, a limit."""
    for name in ("work", "slow"):
        app.action(name)(lambda: None)
    worker = Worker(app)
    for number in range(3):
        await app.schedule("work", id=f"done:{number}")
    while await worker.run_due():
        pass
    await app.limits.set("handler:slow", "1/1h")
    await app.templates.set("promo")
    await app.templates.pause("promo")
    await app.schedule("slow", id="held", template="promo")
    while await worker.run_due():
        pass
    await app.schedule("work", id="due")


def test_one_frame_tells_the_essentials_where_nobody_looks_at_a_terminal(
    matrixsched: Matrixsched, database_url: str
) -> None:
    on(database_url, busy)
    shown = matrixsched("top", "--database", database_url, "--every", "1h")
    assert shown.code == 0
    assert not [line for line in shown.out.splitlines() if line.endswith(" ")]
    head, database, due, shards, *tables = shown.out.splitlines()
    assert "installation default" in head
    assert database.startswith(("SQLite database", "PostgreSQL at"))
    assert due.startswith("due 2  oldest due for ")
    assert "ended 0.0/s" in due, "three in an hour"
    assert shards.startswith("shards 4, 0 held, 1 with new rows  workers seen 1")
    for title in ("WORKER", "GATE", "LIMIT"):
        assert any(line.startswith(title) for line in tables)
    assert any(line.split()[:3] == ["paused", "promo", "1"] for line in tables)
    assert any(line.startswith("handler:slow  1/h") for line in tables)
    assert f"`matrixsched doctor --database {shlex.quote(database_url)}`" in shown.err


def test_the_same_as_json(matrixsched: Matrixsched, database_url: str) -> None:
    on(database_url, busy)
    told = matrixsched("top", "--database", database_url, "--json", "--every", "30s").json
    assert list(told) == ["installation", "workers", "gates", "limits", "queues"]
    whole = told["installation"]
    assert (whole["due"], whole["shards"], whole["workers"], whole["ended_per_s"]) == (2, 4, 1, 0.1)
    assert whole["late_s"] >= 0
    assert told["gates"] == [{"gate": "paused", "template": "promo", "rows": 1}]
    assert told["workers"][0]["holds"] == 0


def test_a_queue_is_shown(matrixsched: Matrixsched, database_url: str) -> None:
    async def put(app: App) -> None:
        await storage_of(app).put(7, b"x")

    on(database_url, put)
    (queue,) = matrixsched("top", "--database", database_url, "--json").json["queues"]
    assert (queue["queue"], queue["ready"], queue["dead"]) == ("7", 1, 0)


def test_the_pace_is_counted_between_two_looks(database_url: str) -> None:
    async def work(app: App) -> float:
        app.action("work")(lambda: None)
        before = await look(app, before=None, every=SECOND)
        for number in range(5):
            await app.schedule("work", id=f"{number}")
        while await Worker(app).run_due():
            pass
        after = await look(app, before=before, every=SECOND)
        assert after.since == before.pace.now
        return after.per_second() * (after.pace.now - after.since).total_seconds()

    assert on(database_url, work) == pytest.approx(5)


def test_a_database_that_is_away_is_said_and_ends_one_frame(matrixsched: Matrixsched) -> None:
    away = matrixsched("top", "--database", "postgresql://u:hunter2@127.0.0.1:1/x", "--once")
    assert (away.code, away.out) == (1, "")
    assert "cannot connect to PostgreSQL at 127.0.0.1:1" in away.err
    assert "hunter2" not in away.err
    assert matrixsched("top", "--database", "sqlite:///x.db", "--every", "0").code == 2


# On a terminal.


@pytest.mark.slow
def test_on_a_terminal_it_goes_on_until_q(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    on(url, busy)
    with on_a_terminal("top", "--database", url, "--every", "100ms") as terminal:
        first = terminal.see("due 2")
        lines = first.splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80
        on(url, lambda app: app.schedule("work", id="another"))
        terminal.see("due 3")
        assert terminal.press("q") == 0
        assert "\x1b[?1049l" in terminal.shown, "the screen is as it was before"


@pytest.mark.slow
def test_ctrl_c_ends_it_as_well(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    on(url, busy)
    with on_a_terminal("top", "--database", url, "--every", "1h") as terminal:
        terminal.see("due 2")
        assert terminal.press("\x03") == 0
        assert "Traceback" not in terminal.shown


@pytest.mark.slow
@pytest.mark.direct("it is the server that is away")
@pytest.mark.timeout(120)
def test_an_outage_is_part_of_the_frame_and_it_goes_on_afterwards(postgres_server: object) -> None:
    with start_postgres() as server:
        if server.process is None:
            pytest.skip("the server in MATRIXSCHED_TEST_PG is not ours to stop")
        url = server.create_database("away")
        on(url, busy)
        with on_a_terminal("top", "--database", url, "--every", "200ms") as terminal:
            terminal.see("due 2")
            server.process.stop("immediate")
            gone = terminal.see("cannot connect to PostgreSQL")
            assert "due 2" in gone, "what was seen last stays"
            server.process.start()
            on(url, lambda app: app.schedule("work", id="another"))
            back = terminal.see("due 3")
            assert "cannot connect" not in back
            assert terminal.press("q") == 0


# Frames.


@given(st.lists(st.integers(0, 50), max_size=5), st.integers(-5, 60))
def test_rows_are_shared_out_within_the_room_and_none_is_left_while_somebody_wants_it(
    wanted: list[int], room: int
) -> None:
    given_rows = shares(wanted, room)
    assert all(0 <= one <= want for one, want in zip(given_rows, wanted, strict=True))
    assert sum(given_rows) <= max(0, room)
    if sum(given_rows) < sum(wanted):
        assert sum(given_rows) == max(0, room)


@pytest.fixture
def crowded(tmp_path: Path) -> Look:
    """More of everything than a small terminal has room for."""

    async def seen(app: App) -> Look:
        await busy(app)
        return await look(app, before=None, every=SECOND)

    one = on(f"sqlite:///{tmp_path}/x.db", seen)
    name = "a-machine-with-a-rather-long-name.example.org"
    seen_now = replace(one.shards[0], heartbeat_age=timedelta(0))
    shards = [replace(seen_now, shard=n, locked_by=f"{name}/{n}/0.1") for n in range(64)]
    return replace(one, shards=shards, limits=one.limits * 40)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (200, 60)])
def test_a_frame_fits_the_terminal_and_grows_with_it(crowded: Look, columns: int, lines: int) -> None:
    console = Console(width=columns, height=lines, file=io.StringIO(), color_system=None)
    for failure in (None, "the database is away " * 20):
        with console.capture() as captured:
            console.print(frame(crowded, failure=failure, every_s=2, height=lines))
        shown = captured.get().splitlines()
        assert len(shown) <= lines
        assert max(map(len, shown)) <= columns
        assert any("more" in line for line in shown)
        assert len(shown) >= lines - 5, "the room is used"
        assert ("the database is away" in captured.get()) == (failure is not None)


def test_before_anything_was_seen_a_frame_says_what_is_wrong() -> None:
    console = Console(width=80, height=24, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(frame(None, failure="away", every_s=2, height=24))
    assert captured.get().splitlines() == ["matrixsched top  every 2 s, q ends", "away"]
