"""`matrixsched actions`: what it shows, what it changes, and what it leaves alone."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.command import Matrixsched, on

from matrixsched import App, Context, Outcome, Retry, State, every
from matrixsched.clock import ManualClock
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.installed

SECOND = timedelta(seconds=1)
SECRET = "canary"


def at(url: str, *arguments: str) -> list[str]:
    return ["actions", *arguments, "--database", url]


def plant(url: str, *, live: int = 0, failed: int = 0) -> None:
    """Actions that wait for tomorrow, and actions that failed for good."""

    async def work(app: App) -> None:
        @app.action("break", retry=Retry(max_attempts=1))
        async def fail() -> None:
            raise ValueError("no luck")

        for number in range(failed):
            await app.schedule(fail, id=f"bad:{number}")
        while await Worker(app).run_due():
            pass
        for number in range(live):
            await app.schedule("mail", {"text": SECRET}, id=f"mail:{number}", delay=timedelta(days=1))

    on(url, work)


def states(url: str) -> dict[str, State]:
    async def work(app: App) -> dict[str, State]:
        return {action.id: action.status.state for action in await app.list()}

    return on(url, work)


# list


def test_a_page_says_how_to_get_the_next_one(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=5)
    seen: list[str] = []
    arguments = at(database_url, "list", "--prefix", "mail:", "--limit", "2", "--json")
    for _ in range(3):
        page = matrixsched(*arguments)
        assert page.code == 0
        seen += [row["id"] for row in page.json]
        if "there may be more" in page.err:
            arguments = shlex.split(page.err.partition("`")[2].partition("`")[0])[1:]
    assert sorted(seen) == [f"mail:{number}" for number in range(5)]
    assert arguments.count("--after") == 1
    assert "that is all" in page.err


def test_a_list_is_filtered(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=2, failed=2)

    def ids(*options: str) -> list[str]:
        return sorted(row["id"] for row in matrixsched(*at(database_url, "list", "--json", *options)).json)

    everything = ["bad:0", "bad:1", "mail:0", "mail:1"]
    assert ids() == everything
    assert ids("--state", "failed") == everything[:2]
    assert ids("--handler", "mail") == everything[2:]
    assert ids("--prefix", "mail:1") == ["mail:1"]
    assert ids("--due-before", "2000-01-01T00:00:00Z") == []
    assert ids("--due-before", "2190-01-01T00:00:00+01:00", "--state", "live") == everything[2:]


def test_payloads_are_shown_on_demand_only(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=1)
    for command in (["list"], ["show", "mail:0"]):
        for form in ([], ["--json"]):
            assert SECRET not in matrixsched(*at(database_url, *command, *form)).out
            assert SECRET in matrixsched(*at(database_url, *command, *form, "--payload")).out


# show


def lived(url: str) -> None:
    """An action with a history: interrupted, failed, succeeded, superseded, succeeded, and waiting again."""
    clock = ManualClock()
    outcomes = iter([ValueError("no luck"), None, "replace", None])

    async def work(app: App) -> None:
        @app.action("moody", retry=Retry(max_attempts=5, first_delay=10 * SECOND, jitter=0))
        async def moody(context: Context) -> None:
            match next(outcomes):
                case "replace":
                    await app.schedule(moody, id=context.id, repeat=every(timedelta(hours=1)), delay=timedelta(hours=1))
                case Exception() as error:
                    raise error

        worker = Worker(app)
        await app.schedule(moody, id="m 1", repeat=every(timedelta(hours=1)))
        await worker.intake.step()  # claimed by a worker that is heard of no more
        clock.advance(WorkerPolicy().attempt_lease)
        worker = Worker(app)
        for wait in (10 * SECOND, timedelta(hours=1), timedelta(hours=1), timedelta(0)):
            assert await worker.run_due() == 1
            clock.advance(wait)

    on(url, work, clock=clock)


def test_an_action_is_shown_with_all_that_happened_to_it(matrixsched: Matrixsched, database_url: str) -> None:
    lived(database_url)
    shown = matrixsched(*at(database_url, "show", "m 1", "--json"))
    assert shown.code == 0
    assert list(shown.json) == ["meta", "spec", "status", "next_runs", "history"]
    assert [one["outcome"] for one in shown.json["history"]] == ["succeeded", "superseded", "failed", "interrupted"]
    assert "ValueError: no luck" in shown.json["history"][2]["error"]
    assert shown.json["spec"]["repeat"] == "--every 1h --misfire once"
    assert shown.json["status"]["state"] == "live"
    assert [run["at"] for run in shown.json["next_runs"][:2]] == [
        "2030-01-01T03:00:20+00:00",
        "2030-01-01T04:00:20+00:00",
    ]
    assert "To run it now: `matrixsched actions run-now --database" in shown.err
    assert shown.err.endswith("'m 1'`.\n")


def test_the_table_holds_the_same_fields_as_the_json(matrixsched: Matrixsched, database_url: str) -> None:
    lived(database_url)
    fields = matrixsched(*at(database_url, "show", "m 1", "--json")).json
    table = matrixsched(*at(database_url, "show", "m 1")).out
    for title, section in fields.items():
        part = table.partition(f"{title.replace('_', ' ').upper()}\n")[2].partition("\n\n")[0]
        shown = part.splitlines()
        if isinstance(section, dict):
            assert [line.split("  ")[0] for line in shown] == [_titled(name) for name in section]
        else:
            assert shown[0].split() == " ".join(_titled(name).upper() for name in section[0]).split()
            assert len(shown) == 1 + len(section)


def _titled(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")


def test_a_success_is_part_of_the_history(matrixsched: Matrixsched, database_url: str) -> None:
    async def work(app: App) -> None:
        @app.action("fine")
        async def fine() -> None: ...

        await app.schedule(fine, id="f")
        await Worker(app).run_due()

    on(database_url, work)
    shown = matrixsched(*at(database_url, "show", "f", "--json"))
    assert [one["outcome"] for one in shown.json["history"]] == [Outcome.SUCCEEDED]
    assert shown.json["status"]["standing"].startswith("finished ")
    assert shown.json["next_runs"] == []
    assert "To run it once more: `matrixsched actions run-now" in shown.err


def test_it_is_said_what_an_action_waits_for(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=1)

    waiting = matrixsched(*at(database_url, "show", "mail:0", "--json")).json["status"]
    assert waiting["standing"].startswith("waits for its time, in 23 h ")
    assert (waiting["queue"], waiting["lane"]) == ("incoming", None)


def test_it_is_said_where_an_action_waits_that_is_due_and_why(matrixsched: Matrixsched, database_url: str) -> None:
    """Before any worker came, after one without its handler, when all slots are taken, and after repeated crashes."""

    def standing() -> tuple[str | None, str | None, str]:
        shown = matrixsched(*at(database_url, "show", "due", "--json"))
        assert "to start one: `matrixsched worker MODULE:APP`." in shown.err
        status = shown.json["status"]
        return status["queue"], status["lane"], status["standing"].split(": ", 1)[1]

    async def meet(app: App) -> None:
        app.action("other")(lambda: None)
        assert await Worker(app).run_due() == 0

    on(database_url, lambda app: app.schedule("nobody", id="due"))
    queue, lane, why = standing()
    assert (queue, lane) == ("incoming", None)
    assert why.startswith("no worker has looked into shard ")
    on(database_url, meet)
    assert standing() == (
        "processing",
        "handler:nobody",
        "the worker that met it has no handler 'nobody', so it waits for one that has",
    )

    clock = ManualClock(datetime.now(UTC) - timedelta(hours=1))

    async def crash(app: App) -> None:
        app.action("nobody")(lambda: None)
        await app.schedule("nobody", id="due")
        for _ in range(2):
            await Worker(app).intake.step()  # claimed by a worker that is heard of no more
            clock.advance(WorkerPolicy().attempt_lease + SECOND)

    on(database_url, crash, clock=clock)
    assert standing()[2] == "waits for a worker that is free and has the handler 'nobody'"

    async def suspect(app: App) -> None:
        app.action("nobody")(lambda: None)
        await Worker(app, WorkerPolicy(concurrency=1)).intake.step()

    on(database_url, suspect, clock=clock)
    assert standing()[1:] == (
        "handler!nobody",
        "it was interrupted repeatedly, so a worker runs it only when it runs no other such action",
    )


def test_an_action_that_is_not_there_is_wrong_use(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=1)
    for command in (["show", "x"], ["next", "x"], ["cancel", "mail:0", "x", "--yes"], ["run-now", "x", "--yes"]):
        failed = matrixsched(*at(database_url, *command))
        assert failed.code == 2
        assert failed.err == (
            "matrixsched: there is no action 'x'. Check the id and the installation; finished actions are pruned after "
            "a time.\n"
        )
    assert states(database_url) == {"mail:0": State.LIVE}, "something was cancelled before all were found"


# next


@pytest.mark.parametrize(
    ("zone", "expression", "policies", "runs"),
    [
        ("Europe/Berlin", "30 2 * * *", [], ["2026-03-28T02:30+01:00", "2026-03-29T03:00+02:00"]),
        ("Europe/Berlin", "30 2 * * *", ["--skipped", "skip"], ["2026-03-28T02:30+01:00", "2026-03-30T02:30+02:00"]),
        (
            "Europe/Berlin",
            "30 2 * * *",
            ["--exclude", "2026-03-28"],
            ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
        ),
        ("UTC", "0 9 * * MON", [], ["2026-03-30T09:00+00:00", "2026-04-06T09:00+00:00"]),
    ],
)
def test_a_rule_is_previewed_without_a_database(
    matrixsched: Matrixsched, zone: str, expression: str, policies: list[str], runs: list[str]
) -> None:
    rule = ["--cron", expression, "--zone", zone, *policies, "--after", "2026-03-28T00:00:00Z", "-n", "2"]
    answer = matrixsched("actions", "next", *rule, "--json")
    assert answer.code == 0
    assert [datetime.fromisoformat(run["local"]).isoformat(timespec="minutes") for run in answer.json] == runs
    assert all(run["at"].endswith("+00:00") for run in answer.json)
    assert "matrixsched schedule HANDLER" in answer.err


def test_an_interval_is_previewed_too(matrixsched: Matrixsched) -> None:
    rule = ["--every", "6h", "--exclude", "12:00-19:00", "--after", "2026-03-28T00:00:00Z", "-n", "2"]
    answer = matrixsched("actions", "next", *rule, "--json")
    assert [run["at"] for run in answer.json] == ["2026-03-28T06:00:00+00:00", "2026-03-29T00:00:00+00:00"]


def test_the_next_runs_of_an_action_follow_its_rule(matrixsched: Matrixsched, database_url: str) -> None:
    lived(database_url)
    answer = matrixsched(*at(database_url, "next", "m 1", "-n", "3", "--json"))
    hours = [datetime.fromisoformat(run["at"]) - datetime(2030, 1, 1, 0, 0, 20, tzinfo=UTC) for run in answer.json]
    assert hours == [timedelta(hours=hour) for hour in (3, 4, 5)]
    assert answer.err == f"more about it: `matrixsched actions show --database {shlex.quote(database_url)} 'm 1'`.\n"


def test_of_an_action_that_runs_once_there_are_no_more_runs_and_after_that_none(
    matrixsched: Matrixsched, database_url: str
) -> None:
    plant(database_url, live=1)
    once = matrixsched(*at(database_url, "next", "mail:0", "--json"))
    assert len(once.json) == 1
    assert once.err.startswith("there are no more; more about it: `matrixsched actions show")
    matrixsched(*at(database_url, "cancel", "mail:0", "--yes"))
    ended = matrixsched(*at(database_url, "next", "mail:0", "--json"))
    assert ended.json == []
    assert "To run it now: `matrixsched actions run-now --database" in ended.err
    assert ended.err.endswith(" mail:0`.\n")


# cancel, run-now, redrive


def test_nothing_is_cancelled_without_yes(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=3)
    asked = matrixsched(*at(database_url, "cancel", "--prefix", "mail:", "--json"))
    assert asked.code == 2
    assert asked.json == {"matched": 3, "cancelled": 0, "running": 0, "skipped": 0}
    assert "3 actions will be cancelled" in asked.err
    suggested = f"matrixsched actions cancel --prefix mail: --json --database {shlex.quote(database_url)} --yes"
    assert asked.err.endswith(f"nothing was done. To do it: `{suggested}`.\n")
    assert set(states(database_url).values()) == {State.LIVE}


def test_the_command_that_is_suggested_does_it(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=3)
    asked = matrixsched(*at(database_url, "cancel", "mail:0", "mail:2"))
    done = matrixsched(*shlex.split(asked.err.partition("`")[2].partition("`")[0])[1:])
    assert done.code == 0
    assert states(database_url) == {"mail:0": State.CANCELLED, "mail:1": State.LIVE, "mail:2": State.CANCELLED}


def test_what_cannot_be_cancelled_is_left_alone(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=1, failed=1)
    some = matrixsched(*at(database_url, "cancel", "mail:0", "bad:0", "mail:0", "--yes", "--json"))
    assert (some.code, some.json) == (0, {"matched": 2, "cancelled": 1, "running": 0, "skipped": 1})
    assert "1 were started, changed or locked by others, or in another state" in some.err
    none = matrixsched(*at(database_url, "cancel", "bad:0"))
    assert none.code == 0
    assert "nothing to do: only live ones can be cancelled" in none.err
    assert states(database_url) == {"mail:0": State.CANCELLED, "bad:0": State.FAILED}


def test_many_are_redriven_in_batches(
    matrixsched: Matrixsched, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matrixsched.ops.bulk.PAGE", 2)
    plant(database_url, live=1, failed=5)
    asked = matrixsched(*at(database_url, "redrive", "--handler", "break", "--json"))
    assert (asked.code, asked.json["matched"]) == (2, 5)
    done = matrixsched(*at(database_url, "redrive", "--handler", "break", "--yes", "--json"))
    assert (done.code, done.json) == (0, {"matched": 5, "redriven": 5, "running": 0, "skipped": 0})
    assert set(states(database_url).values()) == {State.LIVE}
    again = matrixsched(*at(database_url, "redrive", "--handler", "break", "--yes"))
    assert again.code == 0
    assert "nothing to do: no action fits" in again.err


def test_only_what_ended_lately_is_redriven(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, failed=2)
    for since, matched in (("2190-01-01T00:00:00Z", 0), ("2020-01-01T00:00:00Z", 2)):
        asked = matrixsched(*at(database_url, "redrive", "--since", since, "--json"))
        assert asked.json["matched"] == matched


def test_an_action_is_made_due_at_once(matrixsched: Matrixsched, database_url: str) -> None:
    plant(database_url, live=1)
    done = matrixsched(*at(database_url, "run-now", "mail:0", "--yes", "--json"))
    assert (done.code, done.json["made_due"]) == (0, 1)

    async def lateness(app: App) -> timedelta:
        action = await app.get("mail:0")
        return await app.store.run(app.store.transitions.now()) - action.status.scheduled_at

    assert on(database_url, lateness) >= timedelta(0)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_on_a_terminal_it_is_asked(
    matrixsched: Matrixsched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    plant(url, live=1)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin.readline", lambda: f"{answer}\n", raising=False)
    monkeypatch.setattr("builtins.input", lambda *prompt: answer)
    done = matrixsched(*at(url, "cancel", "mail:0", "--json"))
    assert "Do it?" in done.err
    json.loads(done.out)
    assert (done.code, states(url)["mail:0"]) == ((0, State.CANCELLED) if answer == "y" else (2, State.LIVE))


# Wrong use.


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["cancel"], "neither ids nor a filter are given: name some, or say which by --handler or --prefix"),
        (["redrive"], "neither ids nor a filter"),
        (["cancel", "a", "--handler", "b"], "ids and filters are both given: choose one"),
        (["redrive", "--state", "done"], "--state done cannot be redriven: choose failed, quarantined or expired"),
        (
            ["redrive", "--since", "yesterday"],
            "--since is 'yesterday', but must be a time such as 2026-03-29T09:00:00Z",
        ),
        (["list", "--due-before", "2026-01-01T00:00"], "has no offset from UTC: write 2026-01-01T00:00:00Z, or"),
        (["list", "--state", "dead"], "See `matrixsched actions list --help`"),
        (["list", "--limit", "0"], "See `matrixsched actions list --help`"),
        (["run-now"], "Missing argument 'ID'. See `matrixsched actions run-now --help`"),
        (["next"], "name either an action or a rule, by --cron or --every"),
        (["next", "a", "--every", "1h"], "name either an action or a rule"),
        (["next", "a", "--after", "2026-01-01T00:00Z"], "--after goes with a rule"),
        (["next", "--zone", "Europe/Berlin"], "--zone goes with --every or --cron"),
        (["next", "--every", "1h", "--skipped", "skip"], "they go with --cron"),
        (["next", "--every", "soon"], "--every is 'soon'. Write it as"),
        (["next", "--every", "1h", "--cron", "* * * * *"], "--every and --cron are both given: choose one"),
        (["next", "--cron", "* * * * * *"], "cron expression '* * * * * *'"),
        (["next", "--cron", "0 0 30 2 *"], "cron expression '0 0 30 2 *'"),
        (["next", "--cron", "0 9 * * *", "--zone", "Europe/Berln"], "close to it: Europe/Berlin"),
        (["next", "--cron", "0 9 * * *", "--misfire", "catch-up"], "must be once, skip or catch-up:N"),
        (["next", "--cron", "0 9 * * *", "--exclude", "noon"], "but must be a date (2026-12-25), a daily window"),
    ],
)
def test_wrong_use_is_told_in_one_line(matrixsched: Matrixsched, tmp_path: Path, command: list[str], said: str) -> None:
    refused = matrixsched("actions", *command, "--database", f"sqlite:///{tmp_path}/x.db")
    assert refused.code == 2
    assert said in refused.err
    assert refused.err.startswith("matrixsched: ")
    assert refused.err.count("\n") == 1
    assert refused.out == ""
    assert list(tmp_path.iterdir()) == []
