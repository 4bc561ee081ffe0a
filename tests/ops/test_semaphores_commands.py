"""`matrixsched semaphores`, as an operator types it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import timedelta

import pytest
from support.command import Answer, Matrixsched, on

from matrixsched import Acquired, App
from matrixsched.ops.cli import main
from matrixsched.ops.commands import semaphoring
from matrixsched.ops.semaphores import Crowd, Standing
from matrixsched.rules.semaphore import Semaphore
from matrixsched.worker import Worker

pytestmark = pytest.mark.installed

SETTINGS = ["semaphore", "active", "try_release", "hold_for"]
FIELDS = [*SETTINGS, "held", "asked", "waiting", "oldest_wait_s"]


class Semaphores:
    """The command on a fresh installation."""

    def __init__(self, matrixsched: Matrixsched, url: str) -> None:
        self._matrixsched = matrixsched
        self.url = url
        on(url, _nothing)

    def __call__(self, *arguments: str) -> Answer:
        verb, *others = arguments
        return self._matrixsched("semaphores", verb, "--database", self.url, *others)

    def keys(self, *options: str) -> list[str]:
        return [row["semaphore"] for row in self("list", "--json", *options).json]

    def shown(self, key: str, *options: str) -> dict[str, list[str]]:
        """The ids of those that hold and of those that wait."""
        told = self("show", "--json", *options, key).json
        return {part: [task["task"] for task in told[part]] for part in ("holders", "waiting")}

    def enqueue(self, key: str, tasks: Mapping[str, float]) -> None:
        """Let tasks wait, and let a worker give out what places there are."""

        async def work(app: App) -> None:
            @app.on_acquired(key)
            async def hand_out(event: Acquired) -> None: ...

            await (await app.semaphores.get(key)).enqueue_many(tasks)
            while await Worker(app).balancing.step() == 0:
                pass

        on(self.url, work)


async def _nothing(app: App) -> None: ...


@pytest.fixture
def semaphores(matrixsched: Matrixsched, database_url: str) -> Semaphores:
    return Semaphores(matrixsched, database_url)


@pytest.fixture
def pool(semaphores: Semaphores) -> Semaphores:
    """With two places: b and c hold them, a and d wait."""
    semaphores("set", "pool", "--active", "2", "--try-release", "1")
    semaphores.enqueue("pool", {"a": 1, "b": 3, "c": 2, "d": 0.5})
    return semaphores


def suggestion(said: str) -> list[str]:
    """The arguments of the suggested `matrixsched semaphores …`, without those that name the database."""
    return shlex.split(re.sub(r" --database \S+", "", said.split("`")[-2]))[2:]


def test_without_semaphores_it_is_said_how_to_make_one(semaphores: Semaphores) -> None:
    empty = semaphores("list")
    assert (empty.code, empty.out) == (0, "")
    arguments = suggestion(empty.err)
    assert arguments == ["set", "KEY", "--active", "1000"]
    assert semaphores(*arguments).code == 0
    assert semaphores.keys() == ["KEY"]


def test_one_is_made_and_listed(semaphores: Semaphores) -> None:
    made = semaphores("set", "pool", "--active", "100", "--hold-for", "10m", "--json")
    assert made.code == 0
    assert list(made.json) == FIELDS
    expected = {"semaphore": "pool", "active": 100, "try_release": 100, "hold_for": "10m"}
    assert {name: made.json[name] for name in SETTINGS} == expected
    assert made.err.startswith("created. ")
    assert semaphores("list", "--json").json == [expected]
    assert re.search(r"^pool +100 +100 +10m$", semaphores("list").out, re.MULTILINE)
    assert semaphores("set", "usual", "--json").json["active"] == 1000
    assert semaphores("show", "usual", "--json").json["semaphore"]["try_release"] == 900


def test_those_that_hold_and_wait_are_counted_on_request(pool: Semaphores) -> None:
    (row,) = pool("list", "--counts", "--json").json
    assert list(row) == FIELDS
    assert (row["held"], row["asked"], row["waiting"]) == (2, 0, 2)
    assert row["oldest_wait_s"] >= 0
    pool.enqueue("pool", {"urgent": 9})
    (row,) = pool("list", "--counts", "--json").json
    assert (row["held"], row["asked"], row["waiting"]) == (2, 1, 3)


def test_one_is_shown_with_its_holders_and_the_first_that_wait(pool: Semaphores) -> None:
    assert pool.shown("pool") == {"holders": ["b", "c"], "waiting": ["a", "d"]}
    told = pool("show", "pool", "--json").json
    assert list(told["semaphore"]) == [*FIELDS, "balanced_at"]
    assert told["semaphore"]["balanced_at"] is not None
    assert list(told["holders"][0]) == ["task", "priority", "held_s", "asked_at", "hold_until"]
    assert list(told["waiting"][0]) == ["task", "priority", "waited_s"]
    table = pool("show", "pool")
    assert re.search(r"^a +1\.0 ", table.out, re.MULTILINE)
    assert "that is all. To let one go by force: `matrixsched semaphores release" in table.err
    few = pool("show", "--waiting", "1", "--holders", "1", "pool", "--json")
    assert [task["task"] for task in few.json["waiting"]] == ["a"]
    assert "2 wait. To see more:" in few.err
    more = pool(*suggestion(few.err))
    assert [task["task"] for task in more.json["waiting"]] == ["a", "d"]
    assert "2 hold places. To see more:" in more.err
    assert "that is all" in pool(*suggestion(more.err)).err


def test_one_that_nobody_wants_says_how_to_change_it(semaphores: Semaphores) -> None:
    semaphores("set", "--", "-quiet pool")
    shown = semaphores("show", "--", "-quiet pool")
    assert "nobody holds or waits." in shown.err
    assert suggestion(shown.err) == ["set", "--active", "N", "--", "-quiet pool"]


def test_what_somebody_else_changes_meanwhile_stays(semaphores: Semaphores, monkeypatch: pytest.MonkeyPatch) -> None:
    semaphores("set", "pool", "--active", "5")
    plan = semaphoring._plan

    def change_it_meanwhile(before: Standing, wanted: Semaphore) -> str:
        monkeypatch.undo()
        assert semaphores("set", "pool", "--hold-for", "10m", "--try-release", "3", "--yes").code == 0
        return plan(before, wanted)

    monkeypatch.setattr(semaphoring, "_plan", change_it_meanwhile)
    changed = semaphores("set", "pool", "--active", "7", "--yes", "--json")
    expected = {"semaphore": "pool", "active": 7, "try_release": 3, "hold_for": "10m"}
    assert {name: changed.json[name] for name in SETTINGS} == expected


def test_one_that_exists_is_changed_only_when_that_is_meant(semaphores: Semaphores) -> None:
    semaphores("set", "pool", "--active", "10", "--try-release", "8")
    asked = semaphores("set", "pool", "--active", "5", "--hold-for", "1h", "--json")
    assert (asked.code, asked.json["active"]) == (2, 10)
    plan = "'pool' will be changed: active from 10 to 5, try release from 8 to 5, hold for from none to 1h."
    assert plan in asked.err
    assert semaphores("list", "--json").json[0]["active"] == 10
    done = semaphores(*suggestion(asked.err))
    assert done.code == 0
    expected = {"semaphore": "pool", "active": 5, "try_release": 5, "hold_for": "1h"}
    assert semaphores("list", "--json").json == [expected]
    again = semaphores("set", "pool", "--active", "5")
    assert again.code == 0
    assert "nothing to do: it is so already." in again.err
    ended = semaphores("set", "pool", "--for-good", "--yes", "--json")
    assert "hold for from 1h to none." in ended.err
    assert ended.json["hold_for"] is None
    assert ended.json["active"] == 5


def test_with_fewer_places_than_are_held_it_is_said_who_will_be_asked(pool: Semaphores) -> None:
    done = pool("set", "pool", "--active", "1", "--try-release", "0", "--yes", "--json")
    assert done.code == 0
    assert "2 hold places: at least 1 of them, the least important, will be asked" in done.err
    assert done.json["held"] == 2
    pool.enqueue("pool", {})
    (row,) = pool("list", "--counts", "--json").json
    assert (row["held"], row["asked"]) == (2, 1)


def test_tasks_are_let_go_by_force_when_that_is_meant(pool: Semaphores) -> None:
    asked = pool("release", "pool", "b", "d", "b", "--json")
    assert asked.code == 2
    assert "will be released: 'b' (holds a place), 'd' (waits). Whoever works on them is not told." in asked.err
    assert [(task["task"], task["state"]) for task in asked.json] == [("b", "acquired"), ("d", "waiting")]
    assert pool.shown("pool") == {"holders": ["b", "c"], "waiting": ["a", "d"]}
    done = pool(*suggestion(asked.err))
    assert done.code == 0
    assert "2 released." in done.err
    assert pool.shown("pool") == {"holders": ["c"], "waiting": ["a"]}
    pool.enqueue("pool", {})
    assert pool.shown("pool") == {"holders": ["c", "a"], "waiting": []}


def test_if_one_is_unknown_none_is_released(pool: Semaphores) -> None:
    refused = pool("release", "pool", "b", "nobody", "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "matrixsched: the semaphore 'pool' has no task 'nobody'. Nothing was released; "
        "`matrixsched semaphores show KEY` shows who holds and who waits.\n"
    )
    assert pool.shown("pool")["holders"] == ["b", "c"]


def test_many_tasks_are_named_in_the_table_alone(pool: Semaphores) -> None:
    many = [f"t{number}" for number in range(7)]
    pool.enqueue("pool", dict.fromkeys(many, -1.0))
    asked = pool("release", "pool", *many)
    assert "'t4' (waits) and 2 more." in asked.err
    assert "t6" in asked.out
    too_many = pool("release", "pool", *map(str, range(1001)), "--yes")
    assert too_many.code == 2
    assert "1,001 tasks are named" in too_many.err


@pytest.mark.parametrize("arguments", [["show", "pool"], ["release", "pool", "a", "--yes"]])
def test_what_is_not_there_is_said_so(semaphores: Semaphores, arguments: list[str]) -> None:
    refused = semaphores(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("matrixsched: there is no semaphore 'pool'. `matrixsched semaphores list` shows")
    assert refused.err.count("\n") == 1
    assert semaphores.keys() == []


def test_they_are_listed_page_by_page(semaphores: Semaphores) -> None:
    async def make(app: App) -> None:
        for key in ("a", "b", "B", "ä"):
            await app.semaphores.get_or_create(key)

    on(semaphores.url, make)
    page = semaphores("list", "--limit", "3", "--json")
    assert [row["semaphore"] for row in page.json] == ["B", "a", "b"]
    rest = semaphores(*suggestion(page.err))
    assert [row["semaphore"] for row in rest.json] == ["ä"]
    end = semaphores("list", "--after", "ä")
    assert (end.code, end.out) == (0, "")
    assert "no more semaphores." in end.err


def test_a_list_costs_one_statement_unless_counts_are_asked_for(
    semaphores: Semaphores, monkeypatch: pytest.MonkeyPatch
) -> None:
    semaphores("set", "pool")

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("it counts")

    monkeypatch.setattr("matrixsched.ops.semaphores._standing", refuse)
    assert semaphores.keys() == ["pool"]
    with pytest.raises(AssertionError, match="it counts"):
        main(["semaphores", "list", "--counts", "--database", semaphores.url])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "pool", "--active", "-1"], "matrixsched: --active is -1, but must be between 0 and"),
        (["set", "pool", "--active", "NaN"], "Invalid value for '--active'"),
        (["set", "pool", "--active", "100001"], "--active is 100001, but must be between"),
        (["set", "pool", "--active", "1", "--try-release", "-1"], "--try-release is -1"),
        (["set", "pool", "--active", "1", "--try-release", "2"], "is 2, but only 1 are active: choose at most"),
        (["set", "pool", "--hold-for", "soon"], "--hold-for is 'soon'"),
        (["set", "pool", "--hold-for", "NaN"], "--hold-for is 'NaN'"),
        (["set", "pool", "--hold-for", "0s"], "--hold-for is zero"),
        (["set", "pool", "--hold-for", "999ms"], "--hold-for is 0.999 s, and a second is the least"),
        (["set", "pool", "--hold-for", "1m", "--for-good"], "--hold-for and --for-good are both given: choose one"),
        (["set", ""], "semaphore key is empty"),
        (["set", "a\x1b"], "control character"),
        (["set", "x" * 245], "semaphore key has 245 bytes, 244 are allowed. Use 1 to 244 bytes"),
        (["show", "x" * 245], "semaphore key has 245 bytes, 244 are allowed"),
        (["release", "x" * 245, "a"], "semaphore key has 245 bytes, 244 are allowed"),
        (["list", "--after", "a\x00"], "control character"),
        (["list", "--limit", "0"], "Invalid value for '--limit'"),
        (["show", "pool", "--waiting", "NaN"], "Invalid value for '--waiting'"),
        (["release", "pool"], "Missing argument"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    semaphores: Semaphores, arguments: list[str], said: str
) -> None:
    refused = semaphores(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert refused.err.count("\n") == 1
    assert semaphores.keys() == []


def test_one_that_exists_is_not_changed_by_what_is_wrong(semaphores: Semaphores) -> None:
    semaphores("set", "pool", "--active", "3")
    before = semaphores("list", "--json").json
    assert "nothing is given that shall be changed" in semaphores("set", "pool", "--yes").err
    refused = semaphores("set", "pool", "--try-release", "4", "--yes")
    assert refused.code == 2
    assert "is 4, but only 3 are active" in refused.err
    assert semaphores("list", "--json").json == before


def test_ids_cannot_be_mistaken_for_options(semaphores: Semaphores) -> None:
    semaphores("set", "--active", "1", "--", "-pool")
    semaphores.enqueue("-pool", {"--yes": 1})
    asked = semaphores("release", "--", "-pool", "--yes")
    assert asked.code == 2
    assert "`matrixsched semaphores release" in asked.err
    done = semaphores(*suggestion(asked.err))
    assert done.code == 0
    assert semaphores(*suggestion(done.err)).code == 0


@pytest.mark.anyio
async def test_nobody_is_shown_to_have_waited_for_less_than_nothing(app: App):
    pool = await app.semaphores.get_or_create("pool", active=1)
    await pool.enqueue_many([("a", 1), ("b", 1), ("c", 1)])
    await pool.release("a")
    counting = app.store.transitions.count_tasks("pool", count_max=10)
    standing = Standing(await app.semaphores.settings("pool"), await app.store.run(counting))
    shown = Crowd(standing, holders=[], waiting=await pool.waiting()).sections["waiting"]
    assert standing.facts["oldest_wait_s"] == timedelta(0)
    assert [one["waited_s"] for one in shown] == [timedelta(0), timedelta(0)]  # type: ignore[index]
