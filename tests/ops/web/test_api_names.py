"""A name for a request stands for one thing that is asked: for another one it is refused, and never taken for done."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import pytest
from support.queue_contract import CONTRACT
from support.web_api import Api, calling

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.ops.operator import audit_page
from matrixsched.rules.audit import AuditOutcome
from matrixsched.web import dashboard

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "k2"}
HOUR = {"handler": "other", "delay": 3600}
OTHERS = [
    HOUR | {"handler": "another"},
    HOUR | {"delay": 60},
    HOUR | {"payload": {"x": 1}},
    HOUR | {"priority": 1},
    HOUR | {"repeat": {"every": "1h"}},
    HOUR | {"exists": "keep"},
]


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    app.queues.use(CONTRACT)
    async with calling(dashboard(app)) as api:
        yield api


async def refused(api: Api, method: str, path: str, body: Any, **options: Any) -> None:
    problem = await api.problem(422, method, path, body, **options)
    assert "sent before, and asked for something else" in problem["detail"]
    assert "Nothing was changed" in problem["detail"]


@pytest.mark.parametrize("other", OTHERS, ids=str)
async def test_another_action_under_the_same_key_is_refused(api: Api, app: App, other: dict[str, Any]) -> None:
    first = await api.done("POST", "/actions", HOUR, headers=KEY)
    await refused(api, "POST", "/actions", other, headers=KEY)
    again = await api.done("POST", "/actions", HOUR, headers=KEY)
    assert again == first | {"created": False, "changed": False}
    (action,) = await app.list()
    assert (action.spec.handler, action.meta.revision) == ("other", 1)


@pytest.mark.parametrize("other", OTHERS[:5], ids=str)
async def test_so_is_another_one_of_the_same_id(api: Api, app: App, other: dict[str, Any]) -> None:
    await api.done("PUT", "/actions/a", HOUR, headers=KEY)
    await refused(api, "PUT", "/actions/a", other, headers=KEY)
    await api.done("PUT", "/actions/a", HOUR | {"delay": "1h"}, headers=KEY)  # which says the same
    await api.done("POST", "/actions", HOUR | {"id": "a"}, headers=KEY)
    assert (await app.get("a")).meta.revision == 1


async def test_whatever_became_of_it_since(api: Api, app: App) -> None:
    await api.done("PUT", "/actions/a", HOUR, headers=KEY)
    await app.schedule("somebody else's", id="a")
    await app.cancel("a")
    await refused(api, "PUT", "/actions/a", OTHERS[0], headers=KEY)
    assert (await api.done("PUT", "/actions/a", HOUR, headers=KEY))["changed"] is False


async def test_a_change_under_the_same_key_is_the_same_change(api: Api, app: App) -> None:
    await api.done("PUT", "/actions/a", HOUR)
    moved = await api.done("POST", "/actions/a/reschedule", {"delay": 60}, headers=KEY)
    at = (await app.get("a")).status.scheduled_at
    await refused(api, "POST", "/actions/a/reschedule", {"delay": 61}, headers=KEY)
    assert (await api.done("POST", "/actions/a/reschedule", {"delay": 60}, headers=KEY)) == moved | {"changed": False}
    assert (await app.get("a")).status.scheduled_at == at
    assert sorted(one.outcome for one in await audit_page(app)).count(AuditOutcome.REFUSED) == 1


async def test_what_replaces_a_version_under_the_same_key_is_the_same(api: Api, app: App) -> None:
    made = await api("PUT", "/actions/a", HOUR)
    seen = {"If-Match": made.headers["etag"], **KEY}
    await api.done("PUT", "/actions/a", HOUR | {"priority": 1}, headers=seen)
    await refused(api, "PUT", "/actions/a", HOUR | {"priority": 2}, headers=seen)
    again = await api.done("PUT", "/actions/a", HOUR | {"priority": 1}, headers=seen)
    assert (again["changed"], (await app.get("a")).spec.priority) == (False, 1)


async def test_a_key_is_of_one_action_and_of_what_is_done_to_it(api: Api, app: App) -> None:
    for id in "ab":
        assert (await api.done("PUT", f"/actions/{id}", HOUR | {"priority": ord(id)}, headers=KEY))["changed"]
        for verb in ("run-now", "cancel"):
            assert (await api.done("POST", f"/actions/{id}/{verb}", headers=KEY))["changed"]
            assert not (await api.done("POST", f"/actions/{id}/{verb}", headers=KEY))["changed"]


async def test_what_was_refused_leaves_its_key_free(api: Api, app: App) -> None:
    await app.schedule("there", id="a", delay=timedelta(hours=1))
    await api.problem(409, "POST", "/actions", HOUR | {"id": "a", "exists": "error"}, headers=KEY)
    await api.problem(404, "POST", "/actions", HOUR | {"id": "a", "template": "promo"}, headers=KEY)
    await api.problem(404, "POST", "/actions/nobody/reschedule", {"delay": 1}, headers=KEY)
    assert (await api.done("POST", "/actions", HOUR | {"id": "a"}, headers=KEY))["changed"]


async def test_in_a_batch_all_are_refused_if_one_is_another(api: Api, app: App) -> None:
    calls = [HOUR | {"request_id": f"request {n}"} for n in range(3)]
    first = await api.done("POST", "/bulk/actions/schedule", {"calls": calls})
    other = [HOUR | {"id": "new"}, calls[0], calls[1] | {"delay": 1}]
    await refused(api, "POST", "/bulk/actions/schedule", {"calls": other})
    alone = await api.done("POST", "/actions", HOUR, headers={"Idempotency-Key": "request 0"})
    assert (alone["id"], alone["changed"]) == (first["ids"][0], False)
    again = await api.done("POST", "/bulk/actions/schedule", {"calls": [*calls, HOUR | {"id": "new"}]})
    assert (again["kept"], again["created"]) == (3, 1)
    assert len(await app.list()) == 4


async def test_a_key_is_forgotten_with_its_request(api: Api, app: App, clock: ManualClock) -> None:
    await api.done("PUT", "/actions/a", HOUR, headers=KEY)
    clock.advance(timedelta(hours=2))
    await app.store.run(app.store.transitions.prune_requests(keep=timedelta(hours=1), limit=100))
    assert (await api.done("PUT", "/actions/a", OTHERS[0], headers=KEY))["changed"]


async def test_of_two_at_once_one_is_done_and_the_other_refused(api: Api, app: App) -> None:
    answers: list[int] = []

    async def send(delay: int) -> None:
        answer = await api("PUT", "/actions/a", HOUR | {"delay": delay}, headers=KEY)
        answers.append(answer.status_code)

    async with anyio.create_task_group() as tasks:
        for delay in range(1, 9):
            tasks.start_soon(send, delay)
    assert sorted(answers) == [201] + [422] * 7
    assert (await app.get("a")).meta.revision == 1


async def test_of_many_batches_at_once_one_is_done(api: Api, app: App) -> None:
    """Their names come in other orders, so that they would wait for one another in a circle."""
    answers: list[int] = []

    async def send(turn: int) -> None:
        calls = [HOUR | {"id": f"a{n}", "request_id": f"r{n}", "priority": turn} for n in range(20)]
        ordered = calls if turn % 2 else calls[::-1]
        answers.append((await api("POST", "/bulk/actions/schedule", {"calls": ordered})).status_code)

    async with anyio.create_task_group() as tasks:
        for turn in range(6):
            tasks.start_soon(send, turn)
    assert sorted(answers) == [200] + [422] * 5
    assert len({action.spec.priority for action in await app.list()}) == 1


async def test_other_tasks_under_the_same_key_are_refused(api: Api, app: App) -> None:
    def tasks(*numbers: int, **more: Any) -> dict[str, Any]:
        return {"tasks": [{"data": {"number": number}, **more} for number in numbers]}

    first = await api.done("POST", "/queues/1/tasks", tasks(1), headers=KEY)
    for other in (tasks(1, 2), tasks(2), tasks(1, delay=5), {"tasks": [{"base64": b64encode(b"x").decode()}]}):
        await refused(api, "POST", "/queues/1/tasks", other, headers=KEY)
    assert await api.done("POST", "/queues/1/tasks", tasks(1), headers=KEY) == first
    assert [task["id"] for task in (await api.get("/queues/1/tasks"))["items"]] == first["ids"]
