"""Nothing is changed by an operator without a trace."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from matrixsched import App, call
from matrixsched.clock import ManualClock
from matrixsched.errors import ActionNotFound, GuidMismatch, OutcomeUnknown
from matrixsched.ops import changes
from matrixsched.ops.bulk import Selection, Tally
from matrixsched.ops.operator import SUBJECT_MAX, Operator, audit_page
from matrixsched.rules.action import State
from matrixsched.rules.audit import AuditEntry, AuditOutcome, Via
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def operator(app: App) -> Operator:
    @app.action("work")
    async def work() -> None: ...

    return Operator(app, "ann", Via.DASHBOARD)


async def last(app: App) -> AuditEntry:
    (entry,) = await audit_page(app, limit=1)
    return entry


async def test_an_entry_says_who_did_what_to_what_and_how_it_stood_before_and_after(operator: Operator) -> None:
    made = await operator.app.schedule("work", id="a", delay=timedelta(hours=1))
    done = await changes.cancel(operator, "a")
    entry = await last(operator.app)
    assert (entry.who, entry.via, entry.verb, entry.subject) == ("ann", Via.DASHBOARD, "cancel", "a")
    assert (entry.before["state"], entry.before["guid"]) == ("live", str(made.guid))
    assert (entry.after["guid"], entry.outcome) == (str(done.guid), AuditOutcome.DONE)
    assert entry.ended_at is not None


async def test_what_is_refused_is_noted_as_refused_with_the_reason(operator: Operator) -> None:
    await operator.app.schedule("work", id="a", delay=timedelta(hours=1))
    with pytest.raises(GuidMismatch):
        await changes.cancel(operator, "a", expected_guid=uuid4())
    entry = await last(operator.app)
    assert entry.outcome is AuditOutcome.REFUSED
    assert "guid" in str(entry.after["error"])
    assert (await operator.app.get("a")).status.state is State.LIVE


async def test_what_is_not_there_is_not_noted(operator: Operator) -> None:
    with pytest.raises(ActionNotFound):
        await changes.cancel(operator, "nothing")
    assert await audit_page(operator.app) == []


@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), RuntimeError("secret")])
async def test_what_was_cut_off_is_noted_as_failed_for_a_part_of_it_may_be_done(
    operator: Operator, error: Exception
) -> None:
    with pytest.raises(type(error)):
        async with operator.noting("cancel", "a"):
            raise error
    entry = await last(operator.app)
    assert entry.outcome is AuditOutcome.FAILED
    assert "secret" not in str(entry.after)


async def test_many_are_one_entry_with_how_many_they_were(operator: Operator) -> None:
    for number in range(5):
        await operator.app.schedule("work", id=f"a{number}", delay=timedelta(hours=1))
    tally = Tally("cancel")
    await changes.change_many(operator, "cancel", Selection(states=(State.LIVE,), prefix="a"), tally)
    entry = await last(operator.app)
    assert entry.subject == "state live, prefix a"
    assert (entry.after["matched"], entry.after["cancelled"]) == (5, 5)


async def test_pages_go_from_the_newest_to_the_oldest_without_a_gap(operator: Operator, clock: ManualClock) -> None:
    for number in range(5):
        async with operator.noting("cancel", str(number)):
            pass
        if number % 2:
            clock.advance(timedelta(seconds=1))
    seen: list[AuditEntry] = []
    while page := await audit_page(operator.app, seen[-1] if seen else None, limit=2):
        seen += page
    assert len(seen) == 5
    assert [entry.asked_at for entry in seen] == sorted((entry.asked_at for entry in seen), reverse=True)
    assert len({entry.guid for entry in seen}) == 5


async def test_how_it_ended_is_told_once(operator: Operator) -> None:
    async with operator.noting("cancel", "a"):
        pass
    entry, do = await last(operator.app), operator.app.store.transitions
    assert not await operator.app.store.run(do.end_audit(entry.guid, AuditOutcome.FAILED, {}))
    assert (await last(operator.app)).outcome is AuditOutcome.DONE


async def test_what_is_begun_is_written_once_however_often_it_is_sent(operator: Operator) -> None:
    do, run = operator.app.store.transitions, operator.app.store.run
    for who in ("ann", "bob"):
        await run(do.begin_audit(UUID(int=1), who=who, via=Via.API, verb="cancel", subject="a", before={}))
    (entry,) = await audit_page(operator.app)
    assert (entry.who, entry.outcome, entry.ended_at) == ("ann", AuditOutcome.BEGUN, None)


async def test_workers_forget_what_is_older_than_it_is_kept(operator: Operator, clock: ManualClock) -> None:
    worker = Worker(operator.app)
    async with operator.noting("cancel", "a"):
        pass
    clock.advance(worker.policy.keep_audit + timedelta(seconds=1))
    async with operator.noting("cancel", "b"):
        pass
    await worker.minutes.step()
    assert [entry.subject for entry in await audit_page(operator.app)] == ["b"]


async def test_a_change_that_did_nothing_is_not_noted_as_done(operator: Operator) -> None:
    app = operator.app
    await app.schedule("work", id="a", delay=timedelta(hours=1))
    for _ in range(8):
        await changes.run_now(operator, "a", request_id="once")
    outcomes = Counter(entry.outcome for entry in await audit_page(app))
    assert outcomes == {AuditOutcome.DONE: 1, AuditOutcome.UNCHANGED: 7}
    await app.cancel("a")
    await changes.cancel(operator, "a")
    assert (await last(app)).outcome is AuditOutcome.UNCHANGED
    await changes.change_many(operator, "cancel", Selection(ids=["a"]), Tally("cancel"))
    assert (await last(app)).outcome is AuditOutcome.UNCHANGED
    assert not await changes.remove_limit(operator, "global")
    assert (await last(app)).outcome is AuditOutcome.UNCHANGED


async def test_of_many_it_is_told_which_were_meant_and_which_were_changed(operator: Operator) -> None:
    ids = [f"action-{number:04}" for number in range(1000)]
    await operator.app.schedule_many(call("work", id=id, delay=timedelta(hours=1)) for id in ids)
    await operator.app.cancel(ids[7])
    await changes.change_many(operator, "cancel", Selection(ids=ids), Tally("cancel"))
    entry = await last(operator.app)
    assert len(entry.subject) <= SUBJECT_MAX
    assert entry.subject.startswith("action-0000, action-0001, ")
    assert entry.subject.endswith(" more")
    assert entry.before["ids"] == ids
    assert sorted(entry.after["ids"]) == [id for id in ids if id != ids[7]]  # type: ignore[type-var]
    assert entry.after["cancelled"] == 999


async def test_where_they_are_too_many_it_is_told_how_many_are_not_listed(operator: Operator) -> None:
    ids = [f"{number:03}-{'x' * 250}" for number in range(100)]
    await operator.app.schedule_many(call("work", id=id, delay=timedelta(hours=1)) for id in ids)
    await changes.change_many(operator, "cancel", Selection(states=(State.LIVE,), prefix="0"), Tally("cancel"))
    entry = await last(operator.app)
    assert entry.before["filter"] == "state live, prefix 0"
    listed = entry.after["ids"]
    assert isinstance(listed, list)
    assert 0 < len(listed) < 100
    assert entry.after["ids_not_listed"] == 100 - len(listed)


async def test_of_a_batch_that_replaces_it_is_told_what_was_there(operator: Operator) -> None:
    ids = [f"a{number}" for number in range(500)]
    await operator.app.schedule_many(call("work", id=id, delay=timedelta(hours=1)) for id in ids)
    await changes.schedule_many(operator, [call("work", id=id, delay=timedelta(hours=2)) for id in [*ids, "new"]])
    entry = await last(operator.app)
    assert (entry.verb, entry.before["ids"], entry.after["replaced"]) == ("replace", sorted(ids), 500)
    assert entry.subject.endswith(" more")


async def test_a_subject_that_is_cut_says_so(operator: Operator) -> None:
    async with operator.noting("set_limit", "x" * 2000):
        pass
    assert (await last(operator.app)).subject == "x" * (SUBJECT_MAX - 1) + "…"
