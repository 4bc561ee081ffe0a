"""A call whose answer was lost is sent again: what it wrote is told as written, whatever others have done since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from matrixsched import App, State, call
from matrixsched.calls import Scheduled
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import ActionExists, ActionFinished, ActionNotFound, GuidMismatch, OutcomeUnknown
from matrixsched.store.transition import Transition
from matrixsched.testing.clock import HastyClock

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
Call = Callable[[App], Awaitable[object]]
CHANGING = ("schedule", "replace", "reschedule", "cancel")


@pytest.fixture
async def app(database_url: str, clock: ManualClock, anyio_backend: str) -> Any:
    """One that does not wait between two tries."""
    app = App(database_url, clock=HastyClock(clock), chance=SeededChance(1))
    await app.init(shards=4)
    async with app:
        yield app


@pytest.fixture
async def other(app: App, database_url: str, clock: ManualClock) -> Any:
    """Another client."""
    other = App(database_url, clock=HastyClock(clock), chance=SeededChance(2))
    async with other:
        yield other


def lose_answer(app: App, other: App | None = None, then: Call | None = None, *, is_done: bool = True) -> list[str]:
    """The answer to the next change is lost, and somebody else does something before it is sent again."""
    run, struck = app.store.run, list[str]()

    async def losing(transition: Transition[Any]) -> Any:
        if struck or transition.name not in CHANGING:
            return await run(transition)
        struck.append(transition.name)
        if is_done:
            await run(transition)
        if then is not None and other is not None:
            await then(other)
        raise OutcomeUnknown("lost")

    app.store.run = losing  # type: ignore[method-assign]
    return struck


CHANGES: dict[str, Callable[[App, UUID, str | None], Awaitable[Scheduled]]] = {
    "replace": lambda app, guid, name: app.schedule("note", id="n", delay=HOUR, request_id=name),
    "replace expected": lambda app, guid, name: app.schedule(
        "note", id="n", delay=HOUR, expected_guid=guid, request_id=name
    ),
    "reschedule": lambda app, guid, name: app.reschedule("n", delay=HOUR, request_id=name),
    "reschedule expected": lambda app, guid, name: app.reschedule("n", delay=HOUR, expected_guid=guid, request_id=name),
    "run_now": lambda app, guid, name: app.run_now("n", request_id=name),
    "run_now expected": lambda app, guid, name: app.run_now("n", expected_guid=guid, request_id=name),
    "cancel": lambda app, guid, name: app.cancel("n", request_id=name),
    "cancel expected": lambda app, guid, name: app.cancel("n", expected_guid=guid, request_id=name),
}
OTHERS: dict[str, Call | None] = {
    "nobody": None,
    "replaced": lambda app: app.schedule("note", id="n", delay=HOUR),
    "cancelled": lambda app: app.cancel("n"),
}
NAMES = pytest.mark.parametrize("name", [None, "r"], ids=["unnamed", "named"])


@NAMES
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_was_carried_out_is_told_as_written(
    app: App, other: App, change: str, others: str, name: str | None
):
    guid = (await app.schedule("note", id="n", delay=HOUR)).guid
    written: list[UUID] = []

    async def then(other: App) -> None:
        written.append((await other.get("n")).meta.guid)
        if (change := OTHERS[others]) is not None:
            await change(other)

    struck = lose_answer(app, other, then)
    answer = await CHANGES[change](app, guid, name)
    assert len(struck) == 1
    assert (answer.changed, answer.created, [answer.guid]) == (True, False, written)
    assert written[0] != guid


@NAMES
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_was_not_carried_out_is_made_when_it_is_sent_again(app: App, change: str, name: str | None):
    guid = (await app.schedule("note", id="n", delay=HOUR)).guid
    lose_answer(app, is_done=False)
    answer = await CHANGES[change](app, guid, name)
    assert answer.changed
    assert answer.guid == (await app.get("n")).meta.guid != guid


@NAMES
@pytest.mark.parametrize("change", [change for change in CHANGES if "expected" in change])
async def test_a_change_of_another_version_is_refused_although_an_answer_was_lost(
    app: App, other: App, change: str, name: str | None
):
    guid = (await app.schedule("note", id="n", delay=HOUR)).guid
    lose_answer(app, other, OTHERS["replaced"], is_done=False)
    with pytest.raises(GuidMismatch):
        await CHANGES[change](app, guid, name)
    with pytest.raises(GuidMismatch):
        await CHANGES[change](app, uuid4(), name)


async def test_what_was_finished_before_is_said_to_be_although_an_answer_was_lost(app: App):
    await app.schedule("note", id="n")
    await app.cancel("n")
    lose_answer(app)
    with pytest.raises(ActionFinished):
        await app.reschedule("n", delay=HOUR)
    lose_answer(app)
    assert not (await app.cancel("n")).changed


@NAMES
@pytest.mark.parametrize("exists", ["keep", "error"])
@pytest.mark.parametrize("others", OTHERS)
async def test_a_new_action_is_told_as_created(app: App, other: App, exists: Any, others: str, name: str | None):
    lose_answer(app, other, OTHERS[others])
    answer = await app.schedule("note", id="n", delay=HOUR, exists=exists, request_id=name)
    assert (answer.changed, answer.created) == (True, True)
    lose_answer(app, other, lambda other: other.schedule("note", id="a", delay=HOUR))
    calls = [call("note", id=id, request_id=name) for id in "abc"]
    many = await app.schedule_many(calls, exists=exists)
    assert (many.created, many.kept) == (3, 0)


@NAMES
@pytest.mark.parametrize("others", OTHERS)
async def test_a_new_action_that_may_replace_another_is_told_as_created(
    app: App, other: App, others: str, name: str | None
):
    lose_answer(app, other, OTHERS[others])
    answer = await app.schedule("note", id="n", delay=HOUR, request_id=name)
    assert (answer.changed, answer.created) == (True, True)


@NAMES
async def test_what_existed_is_kept_or_refused_although_an_answer_was_lost(app: App, name: str | None):
    guid = (await app.schedule("note", id="n", delay=HOUR)).guid
    lose_answer(app)
    kept = await app.schedule("note", id="n", exists="keep", request_id=name)
    assert (kept.changed, kept.guid) == (False, guid)
    run = app.store.run
    lose_answer(app, is_done=name is None)  # a named one is refused before anything is carried out
    refused = {"exists": "error", "request_id": name and f"{name}2"}
    if name is None:
        with pytest.raises(ActionExists):
            await app.schedule("note", id="n", **refused)
    app.store.run = run  # type: ignore[method-assign]
    with pytest.raises(ActionExists):
        await app.schedule("note", id="n", **refused)
    assert (await app.get("n")).meta.guid == guid


async def test_what_was_written_and_is_gone_is_told_as_written(app: App, other: App, clock: ManualClock):
    async def finish_and_prune(other: App) -> None:
        await other.cancel("n")
        clock.advance(timedelta(seconds=10))
        await other.store.run(
            other.store.transitions.prune_actions(State.CANCELLED, keep=timedelta(seconds=5), limit=10)
        )

    lose_answer(app, other, finish_and_prune)
    assert (await app.schedule("note", id="n", delay=HOUR, exists="keep")).created
    with pytest.raises(ActionNotFound):
        await app.get("n")
    await app.schedule("note", id="n", delay=HOUR)
    lose_answer(app, other, finish_and_prune)
    assert (await app.cancel("n")).changed


async def finished_long_ago(app: App, clock: ManualClock) -> None:
    await app.schedule("note", id="n", delay=HOUR)
    await app.cancel("n")
    clock.advance(timedelta(seconds=10))


async def prune_finished(other: App) -> None:
    pruning = other.store.transitions.prune_actions(State.CANCELLED, keep=timedelta(seconds=5), limit=10)
    assert await other.store.run(pruning) == 1


@pytest.mark.parametrize("exists", ["keep", "error"])
async def test_what_was_there_and_is_gone_when_a_call_is_sent_again_is_created(
    app: App, other: App, clock: ManualClock, exists: Any
):
    await finished_long_ago(app, clock)
    lose_answer(app, other, prune_finished)
    answer = await app.schedule("note", id="n", delay=HOUR, exists=exists)
    assert (answer.created, answer.guid) == (True, (await app.get("n")).meta.guid)


@NAMES
async def test_what_was_kept_and_is_gone_when_many_calls_are_sent_again_is_told_as_kept(
    app: App, other: App, clock: ManualClock, name: str | None
):
    """Those beside it were written: a refusal of all would not be true."""
    await finished_long_ago(app, clock)
    lose_answer(app, other, prune_finished)
    calls = [call("note", id=id, delay=HOUR, request_id=name) for id in "mn"]
    many = await app.schedule_many(calls, exists="keep")
    assert (many.total, many.created, many.kept) == (2, 1, 1)
    assert (await app.get("m")).status.state is State.LIVE
    with pytest.raises(ActionNotFound):
        await app.get("n")


@pytest.mark.parametrize("change", CHANGES)
async def test_the_same_request_by_its_name_changes_nothing_and_is_not_refused(app: App, change: str):
    guid = (await app.schedule("note", id="n", delay=HOUR)).guid
    first = await CHANGES[change](app, guid, "r")
    again = await CHANGES[change](app, guid, "r")
    assert (again.changed, again.guid) == (False, first.guid)


async def test_the_same_new_action_by_the_name_of_its_request_is_not_refused(app: App):
    first = await app.schedule("note", id="n", delay=HOUR, exists="error", request_id="r")
    again = await app.schedule("note", id="n", delay=HOUR, exists="error", request_id="r")
    assert (first.created, again.changed, again.guid) == (True, False, first.guid)
    with pytest.raises(ActionExists):
        await app.schedule("note", id="n", delay=HOUR, exists="error", request_id="another")


@NAMES
@pytest.mark.parametrize("change", ["reschedule", "run_now", "cancel"])
async def test_what_was_refused_is_not_done_when_its_first_try_arrives_late(app: App, change: str, name: str | None):
    run, late = app.store.run, list[Transition[Any]]()

    async def under_way(transition: Transition[Any]) -> Any:
        if late or transition.name not in CHANGING:
            return await run(transition)
        late.append(transition)
        raise OutcomeUnknown("under way")

    app.store.run = under_way  # type: ignore[method-assign]
    with pytest.raises(ActionNotFound):
        await CHANGES[change](app, uuid4(), name)
    guid = (await app.schedule("note", id="n", delay=HOUR)).guid
    assert not (await run(late[0])).changed
    assert (await app.get("n")).meta.guid == guid
    assert (await CHANGES[change](app, guid, name)).changed


@NAMES
async def test_what_was_refused_is_told_so_although_answers_were_lost_again(app: App, name: str | None):
    """Among them the one to the calling off, which would pass for the change itself."""
    run, lost = app.store.run, list[str]()

    async def losing(transition: Transition[Any]) -> Any:
        if len(lost) == 0 or (len(lost) == 1 and transition.name == "call_off"):
            with suppress(ActionNotFound):
                await run(transition)
            lost.append(transition.name)
            raise OutcomeUnknown("lost")
        return await run(transition)

    app.store.run = losing  # type: ignore[method-assign]
    with pytest.raises(ActionNotFound):
        await app.cancel("n", request_id=name)
    assert lost == ["cancel", "call_off"]


@pytest.mark.parametrize("is_done", [True, False])
async def test_of_changes_made_together_each_is_told_as_if_it_had_been_made_alone(app: App, is_done: bool):
    guids = {id: (await app.schedule("note", id=id, delay=HOUR)).guid for id in "abc"}
    struck = lose_answer(app, is_done=is_done)
    expected = guids | {"b": uuid4()}
    operations = [app.scheduler.cancelling(id, expected_guid=guid) for id, guid in expected.items()]
    first, refused, last = await app.scheduler.change_together([*operations])
    missing = app.scheduler.cancelling("nobody")
    (nobody,) = await app.scheduler.change_together([missing])
    assert struck == ["cancel"]
    assert [isinstance(one, Scheduled) and one.changed for one in (first, last)] == [True, True]
    assert isinstance(refused, GuidMismatch)
    assert isinstance(nobody, ActionNotFound)
    assert [(await app.get(id)).status.state for id in "abc"] == [State.CANCELLED, State.LIVE, State.CANCELLED]
