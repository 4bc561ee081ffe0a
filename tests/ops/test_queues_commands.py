"""`matrixsched queues`, as an operator types it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import Matrixsched, on
from support.queues_command import Queues, suggestion

from matrixsched import App
from matrixsched.queues.codec import decode
from matrixsched.queues.contracts import load_contract
from matrixsched.queues.database import DatabaseStorage

pytestmark = pytest.mark.installed

SETTINGS = ["paused", "batch_size", "visibility", "processors"]
FIELDS = ["queue", "name", "ready", "taken", "delayed", "dead", "oldest_ready_s", *SETTINGS]
ADA = {"to": "ada@example.org", "body": "aGVsbG8="}


# What is seen.


def test_without_queues_it_is_said_how_to_put_a_task(queues: Queues) -> None:
    empty = queues.bare("list")
    assert (empty.code, empty.out) == (0, "")
    assert suggestion(empty.err)[-5:] == ["--contract", "FILE", "--data", "JSON", "QUEUE"]
    assert queues.bare("list", "--json").json == []


def test_queues_are_listed_by_number_with_names_where_a_contract_tells(queues: Queues) -> None:
    queues.fill(ready=3, delayed=2)
    queues.fill(ready=1, queue=99)
    rows = queues("list", "--json").json
    assert list(rows[0]) == FIELDS
    found = [(row["queue"], row["name"], row["ready"], row["delayed"]) for row in rows]
    assert found == [(7, "emails", 3, 2), (8, "sms", 0, 0), (99, None, 1, 0)]
    assert rows[0]["oldest_ready_s"] >= 0
    assert rows[1]["oldest_ready_s"] is None
    assert [row["name"] for row in queues.bare("list", "--json").json] == [None, None]
    table = queues("list")
    assert re.search(r"^ *7  emails +3 +0 +2 +0 ", table.out, re.MULTILINE)
    assert "that is all." in table.err


def test_the_list_says_where_something_was_set_aside(queues: Queues) -> None:
    queues.fill(dead=2)
    listed = queues("list")
    assert "some were set aside." in listed.err
    assert "it is broken" in queues.typed(suggestion(listed.err)).out


def test_a_queue_is_shown_with_its_tasks_and_dead_letters(queues: Queues) -> None:
    queues.fill(ready=1, delayed=1, dead=1)
    told = queues.shown()
    assert list(told) == ["queue", "tasks", "dead_letters", "workers"]
    assert list(told["queue"]) == FIELDS
    assert [task["state"] for task in told["tasks"]] == ["ready", "delayed"]
    assert list(told["tasks"][0]) == ["task", "state", "attempts", "created_at", "start_at", "due_at", "bytes"]
    (letter,) = told["dead_letters"]
    assert list(letter) == ["task", "attempts", "created_at", "died_at", "reason", "bytes"]
    assert letter["reason"] == "it is broken"
    assert told["workers"] == []
    assert "to put dead letters back:" in queues("show", "7").err


def test_what_is_in_the_tasks_is_shown_on_request(queues: Queues) -> None:
    queues.fill(dead=1)
    queues("put", "emails", "--data", json.dumps(ADA))
    assert "data" not in queues.shown()["tasks"][0]
    told = queues.shown("--data")
    assert json.loads(told["tasks"][0]["data"]) == ADA | {"urgent": False, "copies": []}
    assert told["dead_letters"][0]["data"] == "base64:eA==", "it is not as the contract says"
    bare = queues.bare("show", "--data", "--json", "7").json["tasks"][0]["data"]
    assert bare.startswith("base64:")


def test_dead_letters_and_tasks_are_shown_page_by_page(queues: Queues) -> None:
    queues.fill(dead=3, ready=4)
    first = queues("show", "--dead", "2", "--json", "emails")
    ids = [letter["task"] for letter in first.json["dead_letters"]]
    assert "there may be more dead letters" in first.err
    second = queues.typed(suggestion(first.err))
    ids += [letter["task"] for letter in second.json["dead_letters"]]
    assert len(set(ids)) == 3
    queues("purge", "--dead", "--all", "--yes", "emails")

    async def work(app: App) -> None:
        saying = app.store.transitions.report_processors
        said = saying(app.chance.guid(), name="host/1", processors_max=4, report={"queues": {"7": {}}})
        await app.store.run(said)

    on(queues.url, work)
    few = queues("show", "--tasks", "2", "--json", "emails")
    assert "there are more tasks." in few.err
    assert len(queues.typed(suggestion(few.err)).json["tasks"]) == 4
    assert [(one["worker"], one["processors"], one["assigned"]) for one in few.json["workers"]] == [("host/1", 4, None)]


def test_if_nobody_works_on_it_that_is_said(queues: Queues) -> None:
    queues.fill(ready=1)
    assert "no worker that handles it was seen lately" in queues("show", "emails").err


# What is put.


def test_a_task_is_put_by_its_contract(queues: Queues) -> None:
    done = queues("put", "emails", "--json", "--data", json.dumps(ADA | {"copies": [1, 2**40]}))
    assert done.code == 0
    assert list(done.json) == ["task", "queue", "name", "bytes"]

    async def work(storage: DatabaseStorage) -> None:
        (stored,) = await storage.get(7, 10)
        task: Any = decode(load_contract(queues.contract).queue("emails"), stored)
        assert (task.task_id, task.to, task.body, task.urgent, task.copies) == (
            done.json["task"],
            "ada@example.org",
            b"hello",
            False,
            (1, 2**40),
        )

    queues.do(work)


def test_a_task_is_put_for_later(queues: Queues, tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text('{"number": 491701234567}')
    assert queues("put", "sms", "--data", f"@{file}", "--delay", "2h").code == 0
    assert queues("put", "8", "--data", f"@{file}", "--at", "2100-01-01T00:00:00Z").code == 0
    assert queues.counts("sms") == [0, 2, 0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("{", "--data is not JSON (line 1, column 2"),
        ("[1]", '--data must be an object with the fields of queue \'emails\', as in --data \'{"to": "…", "body":'),
        ('{"body": "aGVsbG8=", "secret": 1}', "queue 'emails' has no field 'secret': it has to, body, urgent, copies"),
        ('{"urgent": true}', "--data has no to, body: queue 'emails' needs it"),
        ('{"to": 5, "body": ""}', "the field 'to' in --data is of type int, must be str"),
        ('{"to": "hunter2", "body": "hunter2!"}', "the field 'body' in --data is not base64"),
        ('{"to": "", "body": "", "copies": [9223372036854775808]}', "'copies' in --data is outside of 64 bits"),
        ('{"to": "hunter2", "body": "", "to": "hunter2"}', "--data has an object with the same key twice: leave out"),
        (f'{{"to": "", "body": "", "copies": [{"7" * 5000}]}}', "--data has a number of too many digits to be read"),
        ('{"to": "", "body": "", "copies": [NaN]}', "'copies' in --data is of type float, must be int"),
        ("@nowhere.json", "--data: nowhere.json cannot be read"),
    ],
)
def test_what_does_not_fit_the_contract_is_refused_and_not_repeated(queues: Queues, data: str, why: str) -> None:
    refused = queues("put", "emails", "--data", data)
    assert (refused.code, refused.out) == (2, "")
    assert why in refused.err
    assert "hunter2" not in refused.err
    assert queues.counts() == [0, 0, 0]


def test_without_a_contract_nothing_can_be_put(queues: Queues) -> None:
    queues.fill(ready=1)
    refused = queues.bare("put", "7", "--data", json.dumps(ADA))
    assert refused.code == 2
    assert "the fields of queue 7 are not known here: give its contract by --contract FILE or --app" in refused.err
    both = queues("put", "emails", "--data", json.dumps(ADA), "--delay", "1s", "--at", "2100-01-01T00:00:00Z")
    assert (both.code, "choose one" in both.err) == (2, True)


# Which queue is meant.


def test_an_unknown_name_is_refused(queues: Queues) -> None:
    refused = queues("show", "faxes")
    assert refused.code == 2
    assert "the contract has no queue 'faxes'; it has: emails, sms." in refused.err
    bare = queues.bare("show", "emails")
    assert bare.code == 2
    assert "nothing here tells which queue is called 'emails': give its number" in bare.err


@pytest.mark.parametrize("number", ["-1", "2147483648", "9" * 5000])
def test_what_is_no_number_of_a_queue_is_refused(queues: Queues, number: str) -> None:
    refused = queues.bare("pause", "--", number)
    assert (refused.code, refused.out) == (2, "")
    assert "is no number of a queue: they go from 0 to 2147483647" in refused.err
    assert queues.bare("list", "--json").json == []


def test_what_is_suggested_names_the_contract_that_is_needed(queues: Queues) -> None:
    queues.fill(ready=1)
    queues("purge", "emails", "--waiting", "--all", "--yes")
    assert "matrixsched queues put --contract FILE --data JSON" in queues.bare("show", "7").err
    assert "matrixsched queues put --data JSON --database" in queues("show", "7").err


def test_a_name_that_was_noted_with_settings_needs_no_contract(queues: Queues) -> None:
    assert queues("set", "emails", "--batch-size", "5", "--yes").code == 0
    assert queues.bare("show", "emails", "--json").json["queue"]["batch_size"] == 5
    assert [row["name"] for row in queues.bare("list", "--json").json] == ["emails"]


def test_a_contract_with_mistakes_is_refused(queues: Queues) -> None:
    queues.contract.write_text("queues: [{id: 7}]")
    refused = queues("list")
    assert (refused.code, refused.out) == (2, "")
    first, second, last = refused.err.splitlines()
    assert (":1:10: " in first, ":1:10: " in second) == (True, True)
    assert last.startswith(f"matrixsched: 2 mistakes in {queues.contract}, so nothing was done. Correct the file;")


# What is changed.


@pytest.mark.parametrize(
    ("verb", "options", "plan", "after"),
    [
        ("retry", [], "2 delayed tasks of queue 'emails' will be ready at once.", [3, 0, 3]),
        ("redrive", [], "3 dead tasks of queue 'emails' will go back to the queue as new.", [4, 2, 0]),
        ("purge", ["--dead"], "3 dead tasks of queue 'emails' will be deleted for good.", [1, 2, 0]),
        ("purge", ["--waiting"], "3 waiting tasks of queue 'emails' will be deleted for good.", [0, 0, 3]),
    ],
)
def test_many_tasks_are_changed_when_that_is_meant(
    queues: Queues, verb: str, options: list[str], plan: str, after: list[int]
) -> None:
    queues.fill(ready=1, delayed=2, dead=3)
    asked = queues(verb, *options, "--all", "--json", "emails")
    assert asked.code == 2
    assert plan in asked.err
    assert queues.counts() == [1, 2, 3]
    done = queues.typed(suggestion(asked.err))
    assert done.code == 0
    assert list(done.json) == ["queue", "name", {"retry": "retried", "redrive": "redriven", "purge": "purged"}[verb]]
    assert queues.counts() == after
    again = queues(verb, *options, "--all", "--yes", "emails")
    assert (again.code, "nothing to do" in again.err) == (0, True)


def test_single_tasks_are_changed_by_id(queues: Queues) -> None:
    queues.fill(ready=1, delayed=2, dead=2)
    told = queues.shown()
    delayed = [str(task["task"]) for task in told["tasks"] if task["state"] == "delayed"]
    dead = [str(letter["task"]) for letter in told["dead_letters"]]
    assert "1 of 2 delayed tasks" in queues("retry", "emails", delayed[0]).err
    assert queues("retry", "emails", delayed[0], "--yes", "--json").json["retried"] == 1
    assert queues("redrive", "emails", dead[0], "--yes", "--json").json["redriven"] == 1
    assert queues.counts() == [3, 1, 1]
    partly = queues("purge", "--dead", "emails", dead[0], dead[1], "--yes")
    assert partly.code == 2
    assert "1 purged: the others are no dead tasks of queue 'emails'." in partly.err
    assert queues("purge", "--waiting", "emails", delayed[1], "--yes").code == 0
    assert queues.counts() == [3, 0, 0]
    assert queues("redrive", "emails", "12345", "--yes").code == 2


def test_what_is_taken_is_left_alone(queues: Queues) -> None:
    queues.fill(ready=2)

    async def work(storage: DatabaseStorage) -> None:
        await storage.get(7, 1)

    queues.do(work)
    assert queues("purge", "--waiting", "--all", "--yes", "--json", "emails").json["purged"] == 1
    assert queues.shown()["queue"]["taken"] == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["retry", "emails"], "say which tasks are meant: either their ids, or --all"),
        (["redrive", "emails", "5", "--all"], "either their ids, or --all"),
        (["purge", "emails", "--all"], "say what shall be deleted: either --dead or --waiting"),
        (["purge", "emails", "--all", "--dead", "--waiting"], "either --dead or --waiting"),
        (["retry", "emails", "0"], "0 is no id of a task"),
        (["retry", "emails", "x"], "See `matrixsched queues retry --help`"),
    ],
)
def test_what_is_not_clear_is_refused(queues: Queues, arguments: list[str], why: str) -> None:
    queues.fill(ready=1, delayed=1, dead=1)
    refused = queues(*arguments, "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert why in refused.err
    assert queues.counts() == [1, 1, 1]


def test_a_queue_is_paused_at_once_and_goes_on_when_that_is_meant(queues: Queues) -> None:
    queues.fill(ready=2)
    paused = queues("pause", "emails", "--json")
    assert (paused.code, paused.json["paused"]) == (0, True)

    async def took(storage: DatabaseStorage) -> int:
        return len(await storage.get(7, 10))

    assert queues.do(took) == 0
    asked = queues.typed(suggestion(paused.err))
    assert asked.code == 2
    assert "2 ready tasks of queue 'emails' may be taken again." in asked.err
    assert queues.do(took) == 0
    done = queues.typed(suggestion(asked.err))
    assert (done.code, "it goes on." in done.err) == (0, True)
    assert queues.do(took) == 2
    assert "nothing to do: it is not paused." in queues("resume", "emails").err


def test_settings_are_changed_when_that_is_meant(queues: Queues) -> None:
    asked = queues("set", "emails", "--batch-size", "100", "--visibility", "2m", "--json")
    assert asked.code == 2
    assert "of queue 'emails' will be changed: batch size from none to 100, visibility from none to 2m." in asked.err
    assert queues.shown()["queue"]["batch_size"] is None
    done = queues.typed(suggestion(asked.err))
    assert {name: done.json[name] for name in SETTINGS} == {
        "paused": False,
        "batch_size": 100,
        "visibility": "2m",
        "processors": None,
    }
    assert queues("set", "emails", "--processors", "3", "--batch-size", "default", "--yes").code == 0
    told = queues.shown()["queue"]
    assert [told[name] for name in SETTINGS] == [False, None, "2m", 3]
    again = queues("set", "emails", "--processors", "3")
    assert (again.code, "nothing to do: it is so already." in again.err) == (0, True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "nothing is given that shall be changed: name it, as in --batch-size 100"),
        (["--batch-size", "0"], "--batch-size is 0, but"),
        (["--batch-size", "many"], "--batch-size is 'many', but must be a whole number, or `default`"),
        (["--visibility", "13h"], "--visibility is 13h, but must be between 1s and 12h; it is prolonged"),
        (["--visibility", "soon"], "--visibility is 'soon'"),
        (["--visibility", "0"], "--visibility is 0s, but must be between 1s and 12h"),
        (["--visibility", "nan"], "--visibility is 'nan'"),
        (["--batch-size", "-1"], "--batch-size is '-1', but must be a whole number"),
        (["--batch-size", "9" * 5000], "but must be a whole number"),
        (["--processors", "-1"], "--processors is '-1', but must be a whole number"),
        (["--processors", "1000001"], "--processors is 1000001, but must be between 0 and 1000000"),
    ],
)
def test_settings_that_no_queue_can_have_are_refused(queues: Queues, options: list[str], why: str) -> None:
    refused = queues("set", "emails", *options, "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert why in refused.err
    assert [queues.shown()["queue"][name] for name in SETTINGS] == [False, None, None, None]


# The application of a module.


@pytest.fixture
def module(queues: Queues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One whose App knows the queues."""
    (tmp_path / "shop_with_queues.py").write_text(
        "from matrixsched import App\n"
        "from matrixsched.queues.contracts import load_contract\n"
        f"contract = load_contract({str(queues.contract)!r})\n"
        f"app = App({queues.url!r})\n"
        "app.queues.use(contract)\n"
    )
    monkeypatch.chdir(tmp_path)
    yield "shop_with_queues:app"
    sys.modules.pop("shop_with_queues", None)


def test_an_app_brings_its_database_and_its_contracts(queues: Queues, module: str, matrixsched: Matrixsched) -> None:
    put = matrixsched("queues", "put", "--app", module, "emails", "--data", json.dumps(ADA))
    assert put.code == 0
    shown = queues.typed(suggestion(put.err))
    assert (shown.code, "emails" in shown.out) == (0, True)
    assert queues.counts() == [1, 0, 0]
    for options in (["--database", queues.url], ["--contract", str(queues.contract)]):
        refused = matrixsched("queues", "list", "--app", module, *options)
        assert (refused.code, "leave out" in refused.err) == (2, True)
