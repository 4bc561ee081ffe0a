"""Changes of many actions over HTTP: in parts, each of which goes on where the one before ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from support.away import leaving
from support.web_api import Api, calling

from matrixsched import App, Retry, State
from matrixsched.clock import ManualClock
from matrixsched.ops import bulk as parts
from matrixsched.ops.operator import audit_page
from matrixsched.ops.web.api import bulk
from matrixsched.rules.audit import AuditOutcome
from matrixsched.web import dashboard
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NO_TIME = timedelta(seconds=-1)
"""Then a request does the least that one does: what it has in hand."""


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    @app.action("other")
    async def other() -> None: ...

    async with calling(dashboard(app)) as api:
        yield api


async def in_parts(api: Api, verb: str, body: dict[str, Any]) -> list[Any]:
    """The answers to a request that is sent again until it is complete."""
    answers = [await api.done("POST", f"/bulk/actions/{verb}", body)]
    while not answers[-1]["complete"]:
        answers.append(await api.done("POST", f"/bulk/actions/{verb}", body | {"cursor": answers[-1]["next_cursor"]}))
    assert answers[-1]["next_cursor"] is None
    return answers


@pytest.mark.parametrize("chosen", [{"prefix": "a"}, {"ids": [f"a{number}" for number in range(5)]}])
async def test_what_is_cut_short_goes_on_and_takes_nobody_twice(
    api: Api, app: App, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any]
) -> None:
    monkeypatch.setattr(bulk, "WORK_FOR", NO_TIME)
    monkeypatch.setattr(parts, "TOGETHER", 1)
    for number in range(5):
        await app.schedule("other", id=f"a{number}", delay=HOUR)
    answers = await in_parts(api, "run-now", chosen)
    assert sum(answer["changed"] for answer in answers) == sum(answer["matched"] for answer in answers) == 5
    assert len(answers) > 3
    assert [(await app.get(f"a{number}")).meta.revision for number in range(5)] == [2] * 5
    entries = await audit_page(app)
    assert {entry.outcome for entry in entries} <= {AuditOutcome.DONE, AuditOutcome.UNCHANGED}
    assert Counter(entry.after["complete"] for entry in entries) == {False: len(answers) - 1, True: 1}
    assert sum(int(str(entry.after["made_due"])) for entry in entries) == 5


async def test_what_a_change_moves_into_another_of_the_states_is_not_taken_again(api: Api, app: App) -> None:
    for number in range(3):
        await app.schedule("other", id=f"d{number}", delay=HOUR)
        await app.cancel(f"d{number}")
    body = {"state": ["cancelled", "live"], "prefix": "d"}
    assert (await api.done("POST", "/bulk/actions/run-now", body | {"dry_run": True}))["matched"] == 3
    done = await api.done("POST", "/bulk/actions/run-now", body)
    assert (done["matched"], done["changed"]) == (3, 3)
    assert (await app.get("d0")).meta.revision == 3


async def test_what_ran_and_ended_between_two_parts_is_not_run_once_more(
    api: Api, app: App, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "WORK_FOR", NO_TIME)
    monkeypatch.setattr(parts, "TOGETHER", 1)
    runs: Counter[str] = Counter()

    @app.action("fail", retry=Retry(max_attempts=1))
    async def fail(name: str) -> None:
        runs[name] += 1
        raise RuntimeError("no")

    for name in ("a", "b", "c"):
        await app.schedule(fail, name, id=name)
    await Worker(app).run_due()
    body = {"state": ["live", "failed", "done"], "handler": "fail"}
    answer = await api.done("POST", "/bulk/actions/run-now", body)
    while not answer["complete"]:
        clock.advance(timedelta(seconds=1))
        await Worker(app).run_due()
        answer = await api.done("POST", "/bulk/actions/run-now", body | {"cursor": answer["next_cursor"]})
    await Worker(app).run_due()
    assert runs == {"a": 2, "b": 2, "c": 2}


async def test_a_filter_that_fits_few_gets_further_with_every_request(
    api: Api, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "WORK_FOR", NO_TIME)
    monkeypatch.setattr(parts, "TOGETHER", 1)
    monkeypatch.setattr(parts, "LOOK_MAX", 40)

    @app.action("rare")
    async def rare() -> None: ...

    for number in range(200):
        await app.schedule("other", id=f"a{number:03}", delay=HOUR)
    await app.schedule("rare", id="b", delay=HOUR)
    answers = await in_parts(api, "cancel", {"handler": "rare"})
    assert [answer["changed"] for answer in answers if answer["matched"]] == [1]
    assert 3 < len(answers) < 10


async def test_a_cursor_goes_with_its_own_request_only(api: Api, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "WORK_FOR", NO_TIME)
    monkeypatch.setattr(parts, "TOGETHER", 1)
    for number in range(3):
        await app.schedule("other", id=f"a{number}", delay=HOUR)
    cursor = (await api.done("POST", "/bulk/actions/cancel", {"prefix": "a"}))["next_cursor"]
    for body in ({"handler": "other"}, {"prefix": "a", "dry_run": True}, {"ids": ["a1"]}):
        await api.problem(422, "POST", "/bulk/actions/cancel", body | {"cursor": cursor})
    await api.problem(422, "POST", "/bulk/actions/run-now", {"prefix": "a", "cursor": cursor})
    await api.problem(422, "POST", "/bulk/actions/cancel", {"prefix": "a", "cursor": "bm9uZQ"})
    assert len(await app.list(state=State.CANCELLED)) == 1


async def test_what_runs_is_left_as_it_is_and_does_not_run_once_more(api: Api, app: App) -> None:
    told: dict[str, Any] = {}

    @app.action("long")
    async def long() -> None:
        told["dry"] = await api.done("POST", "/bulk/actions/run-now", {"prefix": "a", "dry_run": True})
        told["done"] = await api.done("POST", "/bulk/actions/run-now", {"prefix": "a"})

    await app.schedule("long", id="a1")
    await app.schedule("other", id="a2", delay=HOUR)
    await Worker(app).run_due()
    for answer in told.values():
        assert (answer["matched"], answer["skipped"], answer["left_running"]) == (2, 1, 1)
    assert told["done"]["changed"] == 1
    assert (await app.get("a1")).meta.revision == 1
    (entry,) = await audit_page(app)
    assert (entry.after["made_due"], entry.after["left_running"]) == (1, 1)


@pytest.mark.parametrize("together", [1, 2])
async def test_where_the_database_goes_away_it_is_told_how_far_it_came(
    app: App, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(parts, "TOGETHER", together)
    done = 2 * together

    @app.action("other")
    async def other() -> None: ...

    for number in range(5):
        await app.schedule("other", id=f"a{number}", delay=HOUR)
    broken = leaving(app, "cancel", times=2)
    async with calling(dashboard(broken)) as api:
        told = await api.done("POST", "/bulk/actions/cancel", {"prefix": "a"})
        assert (told["changed"], told["matched"], told["complete"]) == (done, done, False)
        (entry,) = await audit_page(app)
        assert (entry.outcome, entry.after["cancelled"]) == (AuditOutcome.FAILED, done)
        # Nothing more is done then, and so it is said.
        await api.problem(503, "POST", "/bulk/actions/cancel", {"prefix": "a", "cursor": told["next_cursor"]})
    assert {entry.outcome for entry in await audit_page(app)} == {AuditOutcome.FAILED, AuditOutcome.REFUSED}
    async with calling(dashboard(app)) as api:
        rest = await api.done("POST", "/bulk/actions/cancel", {"prefix": "a", "cursor": told["next_cursor"]})
    assert (rest["changed"], rest["complete"]) == (5 - done, True)
