"""Actions over HTTP: scheduled, read, listed and changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel
from support.web_api import Api, calling, segment

from matrixsched import App, Retry, call
from matrixsched.clock import ManualClock
from matrixsched.ops.operator import audit_page
from matrixsched.ops.web.api import actions
from matrixsched.ops.web.api.cursors import cursor_of
from matrixsched.rules.action import State
from matrixsched.rules.audit import AuditOutcome, Via
from matrixsched.rules.schedule import Cron, Every
from matrixsched.web import dashboard
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

ODD_IDS = ["a/b", "a b", "ä/ö", "🦊", "%2F", "100%", "a?b#c", "a\\b", "a..b", "bulk", "batch", "a+b", "{id}", "'\"<>"]


class Reminder(BaseModel):
    user_id: int
    text: str


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    @app.action("remind")
    async def remind(reminder: Reminder) -> None: ...

    async with calling(dashboard(app)) as api:
        yield api


def at(moment: datetime) -> str:
    return moment.isoformat()


# Scheduling.


async def test_an_action_is_made_and_read_again(api: Api, app: App, clock: ManualClock) -> None:
    due = clock.now() + timedelta(hours=1)
    body = {"handler": "remind", "payload": {"user_id": 1, "text": "tea"}, "id": "remind:1", "at": at(due)}
    made = await api("POST", "/actions", body)
    assert made.status_code == 201
    assert made.json() | {"guid": ""} == {
        "id": "remind:1",
        "guid": "",
        "created": True,
        "changed": True,
        "running": False,
    }
    assert made.headers["location"] == "/api/v1/actions/remind%3A1"
    read = await api("GET", "/actions/remind%3A1")
    assert read.headers["etag"] == made.headers["etag"] == f'"{made.json()["guid"]}"'
    told = read.json()
    assert (told["handler"], told["state"], told["priority"], told["revision"]) == ("remind", "live", 0, 1)
    assert datetime.fromisoformat(told["scheduled_at"]) == due
    assert (await app.get("remind:1")).spec.payload == b'{"user_id":1,"text":"tea"}'


async def test_a_worker_runs_what_was_scheduled_so(app: App) -> None:
    ran = []

    @app.action("note")
    async def note(text: str) -> None:
        ran.append(text)

    async with calling(dashboard(app)) as api:
        await api.done("POST", "/actions", {"handler": "note", "payload": "tea", "id": "a"})
        worker = Worker(app)
        await worker.run_due()
        assert ran == ["tea"]
        assert (await api.get("/actions/a"))["state"] == "done"


async def test_what_exists_is_replaced_kept_or_refused(api: Api, app: App) -> None:
    body = {"handler": "other", "id": "a", "delay": "1h"}
    first = await api.done("POST", "/actions", body)
    kept = await api("POST", "/actions", body | {"exists": "keep", "priority": 7})
    assert (kept.status_code, kept.json()["changed"], kept.json()["guid"]) == (200, False, first["guid"])
    assert "exists already" in (await api.problem(409, "POST", "/actions", body | {"exists": "error"}))["detail"]
    replaced = await api("POST", "/actions", body | {"priority": 7})
    assert (replaced.status_code, replaced.json()["changed"]) == (200, True)
    assert (await app.get("a")).spec.priority == 7


async def test_a_request_that_is_sent_twice_by_its_name_is_done_once(api: Api, app: App) -> None:
    body, key = {"handler": "other", "delay": 3600}, {"Idempotency-Key": str(uuid4())}
    first = await api("POST", "/actions", body, headers=key)
    again = await api("POST", "/actions", body, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["changed"] is False
    assert (again.json()["id"], again.json()["guid"]) == (first.json()["id"], first.json()["guid"])
    assert len(await app.list()) == 1


@pytest.mark.parametrize("verb", ["cancel", "reschedule", "run-now"])
async def test_so_is_a_change(api: Api, verb: str) -> None:
    await api.done("POST", "/actions", {"handler": "other", "id": "a", "delay": "1h"})
    body, key = {"delay": "2h"} if verb == "reschedule" else None, {"Idempotency-Key": "once"}
    first = await api.done("POST", f"/actions/a/{verb}", body, headers=key)
    again = await api.done("POST", f"/actions/a/{verb}", body, headers=key)
    assert first["changed"]
    assert again == first | {"changed": False}


async def test_only_the_version_that_was_read_is_replaced_or_changed(api: Api) -> None:
    made = await api("PUT", "/actions/a", {"handler": "other", "delay": "1h"})
    assert made.status_code == 201
    seen = {"If-Match": made.headers["etag"]}
    replaced = await api("PUT", "/actions/a", {"handler": "other", "delay": "2h"}, headers=seen)
    assert replaced.status_code == 200
    for method, path, body in (
        ("PUT", "/actions/a", {"handler": "other"}),
        ("POST", "/actions/a/cancel", None),
        ("POST", "/actions/a/reschedule", {"delay": 1}),
        ("POST", "/actions/a/run-now", None),
    ):
        problem = await api.problem(412, method, path, body, headers=seen)
        assert made.json()["guid"] in problem["detail"]
    assert (await api.get("/actions/a"))["guid"] == replaced.json()["guid"]
    await api.problem(404, "PUT", "/actions/nobody", {"handler": "other"}, headers=seen)


@pytest.mark.parametrize("given", ["0", '"0"', "*", 'W/"0f8fad5b-d9cb-469f-a165-70867728950e"', '""'])
async def test_a_version_that_is_none_is_refused_before_anything_is_changed(api: Api, given: str) -> None:
    await api.done("PUT", "/actions/a", {"handler": "other", "delay": "1h"})
    problem = await api.problem(422, "POST", "/actions/a/cancel", headers={"If-Match": given})
    assert problem["errors"] == [{"parameter": "If-Match", "detail": "is no guid in quotation marks"}]
    assert (await api.get("/actions/a"))["state"] == "live"


async def test_rules_are_told_as_they_can_be_sent_again(api: Api, app: App) -> None:
    body: dict[str, Any] = {
        "handler": "other",
        "repeat": {
            "cron": "30 6 * * MON-FRI",
            "zone": "Europe/Berlin",
            "misfire": "catch-up:3",
            "jitter": "5s",
            "exclude": ["2030-12-25", "22:00-06:00", "2030-12-24T12:00:00Z/2030-12-27T06:00:00Z"],
        },
        "retry": {"max_attempts": None, "first_delay": "10s", "factor": 3, "jitter": 0.5},
        "timeout": "PT30S",
        "start_within": 60.5,
        "expires_at": "2031-01-01T00:00:00+01:00",
        "priority": 3,
    }
    await api.done("PUT", "/actions/a", body)
    first = (await app.get("a")).spec
    assert isinstance(first.terms.repeat, Cron)
    told = await api.get("/actions/a")
    assert (told["timeout"], told["start_within"], told["retry"]["first_delay"]) == (30.0, 60.5, 10.0)
    again = {name: told[name] for name in ("handler", "repeat", "retry", "timeout", "start_within", "expires_at")}
    await api.done("PUT", "/actions/a", again | {"priority": 3})
    assert (await app.get("a")).spec == first


async def test_an_interval_lies_on_the_grid_through_its_anchor(api: Api, app: App, clock: ManualClock) -> None:
    anchor = clock.now() + timedelta(minutes=10)
    await api.done("PUT", "/actions/a", {"handler": "other", "repeat": {"every": "1h", "anchor": at(anchor)}})
    repeat = (await app.get("a")).spec.terms.repeat
    assert repeat == Every(timedelta(hours=1), anchor=anchor)
    runs = (await api.get("/actions/a/next-runs", count=3))["items"]
    assert [datetime.fromisoformat(run) for run in runs] == [anchor + n * timedelta(hours=1) for n in range(3)]


@pytest.mark.parametrize(
    ("body", "where", "words"),
    [
        ({"handler": "remind", "payload": {"user_id": "secret"}}, None, "payload for handler 'remind'"),
        ({"payload": 1}, "#/handler", "required"),
        ({"handler": 5}, "#/handler", "string"),
        ({"handler": "a", "at": "2030-01-01T00:00:00"}, "#/at", "no offset"),
        ({"handler": "a", "at": 5}, "#/at", "must be a text"),
        ({"handler": "a", "delay": -1}, "#/delay", "number of seconds"),
        ({"handler": "a", "delay": "soon"}, "#/delay", "'soon'"),
        ({"handler": "a", "delay": True}, "#/delay", "number of seconds"),
        ({"handler": "a", "at": "2030-01-01T00:00:00Z", "delay": 5}, None, "choose one"),
        ({"handler": "a", "repeat": {}}, "#/repeat", "either every or cron"),
        ({"handler": "a", "repeat": {"every": "1h", "cron": "* * * * *"}}, "#/repeat", "either every or cron"),
        ({"handler": "a", "repeat": {"cron": "61 * * * *"}}, "#/repeat", "61 * * * *"),
        ({"handler": "a", "repeat": {"cron": "* * * * *", "after_end": True}}, "#/repeat", "go with every"),
        ({"handler": "a", "repeat": {"every": "1h", "skipped": "skip"}}, "#/repeat", "go with cron"),
        ({"handler": "a", "repeat": {"every": "1h", "exclude": ["never"]}}, "#/repeat", "never"),
        ({"handler": "a", "repeat": {"every": "1h", "zone": "Mars/Base"}}, "#/repeat", "Mars/Base"),
        ({"handler": "a", "retry": {"factor": 0}}, "#/retry/factor", "greater than or equal to 1"),
        ({"handler": "a", "priority": "1"}, "#/priority", "integer"),
        ({"handler": "a", "priority": -1}, "#/priority", "greater"),
        ({"handler": "a", "nonsense": 1}, "#/nonsense", "is not known here"),
        ({"handler": "a", "dealy": "5m"}, "#/dealy", "did you mean `delay`?"),
        ({"handler": "a", "repeat": {"every": 5, "delay": 1}}, "#/repeat/delay", "is not known here"),
        ({"handler": "a", "id": "a\nb"}, None, "control character"),
        ({"handler": "a", "id": ""}, "#/id", "at least 1"),
        ({"handler": "a", "zone": "UTC"}, None, "template"),
        ({"handler": "acquired:a"}, None, "semaphores"),
    ],
)
async def test_what_is_wrong_is_told_with_its_place_and_nothing_is_written(
    api: Api, app: App, body: dict[str, Any], where: str | None, words: str
) -> None:
    problem = await api.problem(422, "POST", "/actions", body)
    assert words in problem["detail"]
    assert "secret" not in str(problem)
    assert [fault["pointer"] for fault in problem.get("errors", [])] == ([] if where is None else [where])
    assert await app.list() == []


async def test_all_that_is_wrong_is_told_at_once(api: Api) -> None:
    problem = await api.problem(422, "POST", "/actions", {"handler": 1, "at": "x", "delay": "y", "z": 1})
    assert [fault["pointer"] for fault in problem["errors"]] == ["#/handler", "#/at", "#/delay", "#/z"]
    assert "and 1 more" in problem["detail"]


async def test_an_unknown_template_and_a_large_payload_have_statuses_of_their_own(api: Api) -> None:
    problem = await api.problem(404, "POST", "/actions", {"handler": "a", "template": "promo"})
    assert "PUT /templates/{name}" in problem["detail"]
    await api.problem(413, "POST", "/actions", {"handler": "a", "payload": "x" * 1_000_001})


# Batches.


async def test_a_batch_is_one_transaction_and_its_ids_are_told_in_order(api: Api, app: App) -> None:
    calls = [{"handler": "other", "id": f"a{n}", "delay": 60} for n in range(999)] + [{"handler": "other"}]
    told = await api.done("POST", "/bulk/actions/schedule", {"calls": calls})
    assert (told["total"], told["created"], told["replaced"], told["kept"]) == (1000, 1000, 0, 0)
    assert told["ids"][:2] == ["a0", "a1"]
    assert (await app.get(told["ids"][-1])).spec.handler == "other"
    again = await api.done("POST", "/bulk/actions/schedule", {"calls": calls[:10], "exists": "keep"})
    assert (again["kept"], again["created"]) == (10, 0)


async def test_a_batch_with_a_mistake_writes_nothing_and_says_where_it_is(api: Api, app: App) -> None:
    good = {"handler": "other", "delay": 60}
    for calls, pointer in (
        ([good, good | {"at": "x"}], "#/calls/1/at"),
        ([good, good | {"zone": "UTC"}], "#/calls/1"),
        ([good, {"handler": "remind", "payload": 5}], "#/calls/1"),
        ([good | {"id": "a"}, good, good | {"id": "a"}], "#/calls/2/id"),
    ):
        problem = await api.problem(422, "POST", "/bulk/actions/schedule", {"calls": calls})
        assert problem["errors"][0]["pointer"] == pointer
    await api.problem(422, "POST", "/bulk/actions/schedule", {"calls": []})
    await api.problem(422, "POST", "/bulk/actions/schedule", {"calls": [good] * 1001})
    await app.schedule("other", id="there")
    calls = [good | {"id": "new"}, good | {"id": "there"}]
    await api.problem(409, "POST", "/bulk/actions/schedule", {"calls": calls, "exists": "error"})
    assert [action.id for action in await app.list()] == ["there"]


async def test_calls_of_a_batch_that_are_named_are_done_once(api: Api, app: App) -> None:
    calls = [{"handler": "other", "delay": 60, "request_id": f"request {n}"} for n in range(3)]
    first = await api.done("POST", "/bulk/actions/schedule", {"calls": calls})
    again = await api.done("POST", "/bulk/actions/schedule", {"calls": calls})
    assert again["ids"] == first["ids"]
    assert (again["kept"], again["replaced"]) == (3, 0)
    assert len(await app.list()) == 3


# Looking.


async def test_pages_go_through_all_that_fit_once(api: Api, app: App) -> None:
    for number in range(25):
        await app.schedule("even" if number % 2 == 0 else "odd", id=f"a{number}", delay=timedelta(hours=number))
    await app.cancel("a4")
    await app.schedule("even", id="b")
    assert len(await api.all("/actions", limit=4)) == 26
    assert sorted(one["id"] for one in await api.all("/actions", limit=4, handler="odd")) == sorted(
        f"a{n}" for n in range(1, 25, 2)
    )
    assert [one["id"] for one in await api.all("/actions", state="cancelled")] == ["a4"]
    assert [one["id"] for one in await api.all("/actions", prefix="b")] == ["b"]
    before = at(app.clock.now() + timedelta(hours=2))
    assert sorted(one["id"] for one in await api.all("/actions", due_before=before)) == ["a0", "a1", "b"]


async def test_a_page_looks_at_a_bounded_number_of_actions(api: Api, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "LOOK_MAX", 40)
    await app.schedule_many(
        call("rare" if number == 170 else "other", id=f"a{number}", delay=timedelta(hours=1)) for number in range(240)
    )
    pages, cursor = [], {}
    while True:
        page = await api.get("/actions", handler="rare", limit=5, **cursor)
        pages.append([one["id"] for one in page["items"]])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(pages) >= 3
    assert sum(pages, []) == ["a170"]


async def test_few_that_failed_among_many_are_told_at_once_and_newest_first(
    api: Api, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "LOOK_MAX", 40)

    @app.action("fail", retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise ValueError

    await app.schedule_many(call("other", id=f"a{number}", delay=timedelta(hours=1)) for number in range(240))
    for id in ("a", "m", "z"):
        await app.schedule("fail", id=id)
        await Worker(app).run_due()
        assert isinstance(app.clock, ManualClock)
        app.clock.advance(timedelta(seconds=1))
    page = await api.get("/actions", state="failed")
    assert [one["id"] for one in page["items"]] == ["z", "m", "a"]
    assert page["next_cursor"] is None
    assert [one["id"] for one in await api.all("/actions", state="failed", limit=1)] == ["z", "m", "a"]


async def test_a_cursor_goes_on_with_lists_of_its_own_order_only(api: Api, app: App) -> None:
    await app.templates.set("t")
    for number in range(4):
        await app.schedule("other", id=f"a{number}", template="t", delay=timedelta(hours=1))
        await app.schedule("other", id=f"c{number}", delay=timedelta(hours=1))
        await app.cancel(f"c{number}")
    orders: list[dict[str, str]] = [{}, {"state": "cancelled"}, {"state": "live", "template": "t"}]
    for one, other in permutations(orders, 2):
        cursor = (await api.get("/actions", limit=2, **one))["next_cursor"]
        problem = await api.problem(422, "GET", "/actions", params={**other, "cursor": cursor})
        assert problem["errors"] == [{"parameter": "cursor", "detail": "is not one of this list"}]
        assert "or none to begin anew" in problem["detail"]


async def test_payloads_are_told_only_if_they_are_asked_for(api: Api) -> None:
    await api.done("PUT", "/actions/a", {"handler": "other", "payload": {"secret": [1, None, "x"]}})
    await api.done("PUT", "/actions/b", {"handler": "other", "payload": None})
    assert "payload" not in await api.get("/actions/a")
    assert (await api.get("/actions/a", payload="true"))["payload"] == {"secret": [1, None, "x"]}
    assert (await api.get("/actions/b", payload="true"))["payload"] is None
    assert all("payload" not in one for one in (await api.get("/actions"))["items"])
    assert all("payload" in one for one in (await api.get("/actions", payload="true"))["items"])


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "501"},
        {"limit": "ten"},
        {"limit": "1_0"},
        {"limit": ""},
        {"state": "lively"},
        {"payload": "1"},
        {"due_before": "today"},
        {"cursor": "x"},
        {"cursor": "WyJsaW1pdHMiLCAiYSJd"},
        {"cursor": "W10"},
        {"cursor": cursor_of("actions", "a")},
        {"cursor": cursor_of("actions by id", 0, "a")},
        {"cursor": cursor_of("actions by id", -1, "a", "")},
        {"cursor": cursor_of("actions by id", 0, "a\x00", "")},
        {"cursor": "WyJhY3Rpb25zIGJ5IGlkIiwgMCwgIlx1ZDgwMCIsICIiXQ"},  # half a character, which no id of ours holds
        {"cursor": cursor_of("actions by id", 0, "a", "today")},
        {"cursor": cursor_of("actions by id", 0, "a", "0001-01-01T00:00:00+23:00")},
        {"cursor": cursor_of("actions by id", 0, "a", "2026-03-29T09:00:00")},
        {"nonsense": "1"},
        {"handler": ""},
        {"prefix": "a\x00"},
    ],
)
async def test_a_query_that_cannot_be_taken_is_refused_by_the_name_of_its_parameter(
    api: Api, query: dict[str, str]
) -> None:
    problem = await api.problem(422, "GET", "/actions", params=query)
    told = [fault["parameter"] for fault in problem.get("errors", [])] or [problem["detail"]]
    assert any(next(iter(query)) in one for one in told)


async def test_the_same_parameter_twice_is_refused(api: Api) -> None:
    problem = await api.problem(422, "GET", "/actions?limit=1&limit=2")
    assert problem["errors"] == [{"parameter": "limit", "detail": "is given twice"}]


async def test_why_it_has_not_run_and_what_went_wrong_is_told(api: Api, app: App) -> None:
    @app.action("fail")
    async def fail() -> None:
        raise RuntimeError("no tea left")

    await api.done("PUT", "/actions/a", {"handler": "fail"})
    await Worker(app).run_due()
    explained = await api.get("/actions/a/explain")
    assert explained["reasons"][0]["reason"] == "retry"
    assert "failed once" in explained["reasons"][0]["explained"]
    assert "matrixsched actions" in explained["reasons"][0]["next_move"]
    (attempt,) = (await api.get("/actions/a/history"))["items"]
    assert (attempt["outcome"], attempt["attempt"]) == ("failed", 1)
    assert "no tea left" in attempt["error"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/actions/nobody", None),
        ("GET", "/actions/nobody/explain", None),
        ("GET", "/actions/nobody/history", None),
        ("GET", "/actions/nobody/next-runs", None),
        ("POST", "/actions/nobody/cancel", None),
        ("POST", "/actions/nobody/reschedule", {"delay": 1}),
        ("POST", "/actions/nobody/run-now", None),
    ],
)
async def test_what_is_not_there_is_not_found(api: Api, app: App, method: str, path: str, body: Any) -> None:
    assert "'nobody'" in (await api.problem(404, method, path, body))["detail"]
    assert await audit_page(app) == []


@pytest.mark.parametrize("id", ODD_IDS)
async def test_whatever_may_be_an_id_stays_one_segment_of_the_path(api: Api, app: App, id: str) -> None:
    made = await api("PUT", f"/actions/{segment(id)}", {"handler": "other", "delay": "1h"})
    assert made.json()["id"] == id
    assert (await app.get(id)).spec.handler == "other"
    assert (await api.client.get(made.headers["location"])).json()["id"] == id
    for verb in ("run-now", "cancel"):
        assert (await api.done("POST", f"/actions/{segment(id)}/{verb}"))["id"] == id
    assert [one["id"] for one in await api.all("/actions", prefix=id, limit=1)] == [id]


# Changing.


async def test_changes_are_written_down_with_who_made_them(api: Api, app: App) -> None:
    await api.done("PUT", "/actions/a", {"handler": "other", "delay": "1h"})
    assert await audit_page(app) == []
    who = {"X-Operator": "billing"}
    moved = await api.done("POST", "/actions/a/reschedule", {"delay": "2h"}, headers=who)
    run = await api.done("POST", "/actions/a/run-now", headers=who)
    cancelled = await api.done("POST", "/actions/a/cancel", headers=who)
    assert len({moved["guid"], run["guid"], cancelled["guid"]}) == 3
    entries = await audit_page(app)
    assert sorted(entry.verb for entry in entries) == ["cancel", "reschedule", "run_now"]
    assert {(entry.who, entry.via.value) for entry in entries} == {("billing (127.0.0.1)", "api")}
    assert (await app.get("a")).status.state is State.CANCELLED


async def test_the_next_run_is_moved_to_an_instant_or_by_a_time(api: Api, app: App, clock: ManualClock) -> None:
    await api.done("PUT", "/actions/a", {"handler": "other", "delay": "1h"})
    later = clock.now() + timedelta(days=1)
    await api.done("POST", "/actions/a/reschedule", {"at": at(later)})
    assert (await app.get("a")).status.scheduled_at == later
    await api.done("POST", "/actions/a/reschedule", {"delay": 90})
    assert (await app.get("a")).status.scheduled_at == clock.now() + timedelta(seconds=90)
    for body in ({}, {"at": at(later), "delay": 1}):
        await api.problem(422, "POST", "/actions/a/reschedule", body)


async def test_a_finished_action_has_no_run_to_move_but_can_be_run_again(api: Api, app: App) -> None:
    await api.done("PUT", "/actions/a", {"handler": "other", "delay": "1h"})
    await api.done("POST", "/actions/a/cancel")
    problem = await api.problem(409, "POST", "/actions/a/reschedule", {"delay": 1})
    assert "run-now" in problem["detail"]
    again = await api.done("POST", "/actions/a/cancel")
    assert again["changed"] is False
    assert UUID((await api.done("POST", "/actions/a/run-now"))["guid"])
    assert (await app.get("a")).status.state is State.LIVE


async def test_what_replaces_an_action_is_written_down_and_what_is_new_is_not(api: Api, app: App) -> None:
    new = {"handler": "other", "delay": "1h"}
    await api.done("PUT", "/actions/a", new)
    await api.done("POST", "/actions", new | {"id": "b"})
    await api.done("POST", "/bulk/actions/schedule", {"calls": [new | {"id": "c"}, new]})
    await api.done("POST", "/actions", new | {"id": "a", "exists": "keep"})
    assert await audit_page(app) == []

    await api.done("PUT", "/actions/a", new)
    (entry,) = await audit_page(app)
    assert (entry.verb, entry.subject, entry.via, entry.outcome) == ("replace", "a", Via.API, AuditOutcome.DONE)
    assert entry.before["guid"] != entry.after["guid"] == (await api.get("/actions/a"))["guid"]
    await api.done("POST", "/actions", new | {"id": "b"})
    calls = [new | {"id": id} for id in ("c", "b", "d")]
    await api.done("POST", "/bulk/actions/schedule", {"calls": calls})
    entries = {entry.subject: entry for entry in await audit_page(app)}
    assert entries.keys() == {"a", "b", "b, c"}
    assert (entries["b, c"].after["replaced"], entries["b, c"].after["created"]) == (2, 1)


async def test_a_request_that_is_sent_again_is_no_replacement(api: Api, app: App) -> None:
    for _ in range(2):
        await api.done("POST", "/actions", {"handler": "other"}, headers={"Idempotency-Key": "once"})
    assert await audit_page(app) == []


# Many.


async def test_all_that_fit_are_changed_after_a_look_that_changes_nothing(api: Api, app: App) -> None:
    for number in range(12):
        await app.schedule("other", id=f"a{number}", delay=timedelta(hours=1))
    await app.schedule("other", id="b", delay=timedelta(hours=1))
    look = await api.done("POST", "/bulk/actions/cancel", {"prefix": "a", "dry_run": True})
    assert (look["dry_run"], look["complete"], look["matched"], look["changed"]) == (True, True, 12, 0)
    assert await audit_page(app) == []
    done = await api.done("POST", "/bulk/actions/cancel", {"prefix": "a"})
    assert (done["changed"], done["complete"], done["dry_run"]) == (12, True, False)
    assert [action.id for action in await app.list(state=State.LIVE)] == ["b"]
    (entry,) = await audit_page(app)
    assert entry.subject == "state live, prefix a"


async def test_what_ended_badly_is_redriven_and_what_is_named_is_run(api: Api, app: App) -> None:
    @app.action("fail")
    async def fail() -> None:
        raise RuntimeError("no")

    await api.done("PUT", "/actions/a", {"handler": "fail", "retry": {"max_attempts": 1}})
    await Worker(app).run_due()
    assert (await api.get("/actions/a"))["state"] == "failed"
    assert (await api.done("POST", "/bulk/actions/redrive", {"handler": "fail"}))["changed"] == 1
    assert (await api.get("/actions/a"))["state"] == "live"
    assert (await api.done("POST", "/bulk/actions/run-now", {"ids": ["a"]}))["changed"] == 1
    await api.problem(404, "POST", "/bulk/actions/cancel", {"ids": ["a", "nobody"]})
    assert (await api.get("/actions/a"))["state"] == "live"


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("cancel", {}),
        ("cancel", {"ids": []}),
        ("cancel", {"dry_run": True}),
        ("cancel", {"ids": ["a"], "prefix": "a"}),
        ("cancel", {"state": ["done"]}),
        ("redrive", {"state": ["live"]}),
        ("run-now", {"prefix": "a\x00"}),
        ("run-now", {"ids": ["a\x00"]}),
        ("cancel", {"ids": ["a"] * 1001}),
    ],
)
async def test_nobody_means_all_there_are(api: Api, app: App, verb: str, body: dict[str, Any]) -> None:
    await app.schedule("other", id="a", delay=timedelta(hours=1))
    await api.problem(422, "POST", f"/bulk/actions/{verb}", body)
    assert (await app.get("a")).meta.revision == 1
    assert await audit_page(app) == []
