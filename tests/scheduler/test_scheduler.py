"""What users do with actions, on both databases."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel

from matrixsched import App, State, call, every
from matrixsched.errors import ActionExists, ActionFinished, ActionNotFound, BadInput, GuidMismatch
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


class Note(BaseModel):
    text: str


class Ran(list[str]):
    """The texts of the notes that were handled, in order."""


@pytest.fixture
def ran(app: App) -> Ran:
    ran = Ran()

    @app.action("note")
    async def note(note: Note) -> None:
        ran.append(note.text)

    return ran


async def test_an_action_runs_when_it_is_due_and_not_before(app, clock, ran):
    await app.schedule("note", Note(text="tea"), id="tea", delay=timedelta(minutes=5))
    worker = Worker(app)
    assert await worker.run_due() == 0
    clock.advance(timedelta(minutes=5) - timedelta(microseconds=1))
    assert await worker.run_due() == 0
    clock.advance(timedelta(microseconds=1))
    assert await worker.run_due() == 1
    assert ran == ["tea"]
    assert (await app.get("tea")).status.state is State.DONE
    assert await worker.run_due() == 0


async def test_an_action_without_an_id_gets_one_of_its_own(app, ran):
    first = await app.schedule("note", Note(text="a"))
    second = await app.schedule("note", Note(text="b"))
    assert first.id != second.id
    assert first.created
    assert (await app.get(first.id)).spec.payload == b'{"text":"a"}'


async def test_replacing_runs_only_the_new_version(app, ran):
    first = await app.schedule("note", Note(text="old"), id="n")
    second = await app.schedule("note", Note(text="new"), id="n")
    assert (first.created, second.created, second.changed) == (True, False, True)
    assert first.guid != second.guid
    await Worker(app).run_due()
    assert ran == ["new"]


async def test_replacing_begins_anew_with_all_counters(app, clock, ran):
    await app.schedule("note", Note(text="a"), id="n")
    await Worker(app).run_due()
    await app.schedule("note", Note(text="b"), id="n", delay=HOUR)
    status = (await app.get("n")).status
    assert (status.state, status.succeeded, status.last_outcome, status.finished_at) == (State.LIVE, 0, None, None)


async def test_keeping_leaves_an_action_that_exists_also_a_finished_one(app, ran):
    first = await app.schedule("note", Note(text="old"), id="n", exists="keep")
    second = await app.schedule("note", Note(text="new"), id="n", exists="keep")
    assert (first.changed, second.changed, second.guid) == (True, False, first.guid)
    await Worker(app).run_due()
    assert not (await app.schedule("note", Note(text="newer"), id="n", exists="keep")).changed
    await Worker(app).run_due()
    assert ran == ["old"]


async def test_an_action_that_must_not_exist_is_an_error_if_it_does(app, ran):
    first = await app.schedule("note", Note(text="old"), id="n", exists="error")
    with pytest.raises(ActionExists) as refused:
        await app.schedule("note", Note(text="new"), id="n", exists="error")
    assert refused.value.guid == first.guid
    assert (await app.get("n")).meta.guid == first.guid


async def test_compare_and_set_writes_only_over_the_version_that_was_read(app, ran):
    first = await app.schedule("note", Note(text="a"), id="n")
    second = await app.schedule("note", Note(text="b"), id="n", expected_guid=first.guid)
    with pytest.raises(GuidMismatch) as refused:
        await app.schedule("note", Note(text="c"), id="n", expected_guid=first.guid)
    assert refused.value.found == second.guid
    for change in (app.cancel, app.run_now, lambda id, **guid: app.reschedule(id, delay=HOUR, **guid)):
        with pytest.raises(GuidMismatch):
            await change("n", expected_guid=first.guid)
    assert (await app.get("n")).meta.guid == second.guid
    third = await app.reschedule("n", delay=HOUR, expected_guid=second.guid)
    await app.cancel("n", expected_guid=third.guid)


async def test_the_same_request_takes_effect_once_also_late(app, ran):
    first = await app.schedule("note", Note(text="a"), id="n", request_id="r1")
    again = await app.schedule("note", Note(text="a"), id="n", request_id="r1")
    assert (again.changed, again.guid) == (False, first.guid)
    await Worker(app).run_due()
    late = await app.schedule("note", Note(text="a"), id="n", request_id="r1")
    assert not late.changed
    await Worker(app).run_due()
    newer = await app.schedule("note", Note(text="b"), id="n", request_id="r2", delay=HOUR)
    assert not (await app.schedule("note", Note(text="a"), id="n", request_id="r1")).changed
    assert (await app.get("n")).meta.guid == newer.guid
    assert ran == ["a"]


async def test_rescheduling_moves_the_next_run_and_keeps_everything_else(app, clock, ran):
    await app.schedule("note", Note(text="a"), id="n", at=clock.now() + HOUR, priority=7)
    await app.reschedule("n", at=clock.now() + 2 * HOUR)
    action = await app.get("n")
    assert (action.status.scheduled_at, action.spec.priority) == (clock.now() + 2 * HOUR, 7)
    clock.advance(HOUR)
    assert await Worker(app).run_due() == 0
    clock.advance(HOUR)
    assert await Worker(app).run_due() == 1


async def test_a_finished_action_cannot_be_moved_but_can_be_run_again(app, ran):
    await app.schedule("note", Note(text="a"), id="n")
    await Worker(app).run_due()
    with pytest.raises(ActionFinished):
        await app.reschedule("n", delay=HOUR)
    assert (await app.run_now("n")).changed
    await Worker(app).run_due()
    assert ran == ["a", "a"]
    assert (await app.get("n")).status.succeeded == 2


async def test_a_cancelled_action_never_starts_wherever_its_row_is(app, clock, ran):
    await app.schedule("note", Note(text="in incoming"), id="a")
    await app.schedule("note", Note(text="in processing"), id="b", delay=HOUR)
    worker = Worker(app)
    await app.cancel("a")
    await worker.run_due()
    await app.cancel("b")
    clock.advance(HOUR)
    assert await worker.run_due() == 0
    assert [(await app.get(id)).status.state for id in "ab"] == [State.CANCELLED] * 2
    again = await app.cancel("a")
    assert not again.changed


@pytest.mark.parametrize("operation", ["cancel", "run_now", "get", "reschedule"])
async def test_an_unknown_action_is_an_error_that_says_so(app, operation):
    with pytest.raises(ActionNotFound, match="there is no action 'nobody'"):
        await getattr(app, operation)("nobody")


async def test_a_thousand_and_more_are_scheduled_in_batches_with_progress(app, ran):
    seen: list[int] = []
    many = await app.schedule_many(
        (call("note", Note(text=str(n)), id=f"n{n}") for n in range(2500)), progress=seen.append
    )
    assert (many.total, many.created, many.replaced, many.kept) == (2500, 2500, 0, 0)
    assert seen == [1000, 2000, 2500]
    again = await app.schedule_many(
        [call("note", Note(text="x"), id=f"n{n}") for n in range(2490, 2510)], exists="keep"
    )
    assert (again.created, again.kept) == (10, 10)


async def test_the_last_of_several_calls_for_an_id_wins(app, ran):
    await app.schedule_many(call("note", Note(text=text), id="n") for text in "abc")
    await Worker(app).run_due()
    assert ran == ["c"]


async def test_a_mistake_in_a_batch_writes_nothing_of_that_batch(app, ran):
    calls = [call("note", Note(text="ok"), id="ok"), call("note", {"wrong": 1}, id="bad")]
    with pytest.raises(BadInput):
        await app.schedule_many(calls)
    assert await app.list() == []


async def test_listing_filters_and_pages_through_everything_once(app, clock, ran):
    await app.schedule_many(call("note", Note(text="x"), id=f"n{n:03}") for n in range(25))
    await app.schedule("note", Note(text="x"), id="later", delay=HOUR)
    await app.cancel("n007")
    pages, after = [], None
    while page := await app.list(after=after, limit=10):
        pages.append(page)
        after = page[-1]
    ids = [action.id for page in pages for action in page]
    assert sorted(ids) == sorted([f"n{n:03}" for n in range(25)] + ["later"])
    assert [len(page) for page in pages] == [10, 10, 6]
    assert [action.id for action in await app.list(state=State.CANCELLED)] == ["n007"]
    assert len(await app.list(id_prefix="n00")) == 10
    assert len(await app.list(due_before=clock.now() + timedelta(seconds=1), state=State.LIVE)) == 24
    assert await app.list(handler="nobody") == []


async def test_a_repeating_action_keeps_to_its_grid(app, clock, ran):
    await app.schedule("note", Note(text="tick"), id="n", repeat=every(HOUR))
    worker, begun = Worker(app), clock.now()
    for _ in range(3):
        assert await worker.run_due() == 1
        clock.advance(timedelta(minutes=59))
        assert await worker.run_due() == 0
        clock.advance(timedelta(minutes=1))
    action = await app.get("n")
    assert (action.status.tick, action.status.succeeded) == (3, 3)
    assert action.status.scheduled_at == begun + 3 * HOUR
    clock.advance(10 * HOUR + timedelta(minutes=30))
    assert await worker.run_due() == 1
    assert (await app.get("n")).status.scheduled_at == begun + 14 * HOUR


async def test_run_now_of_a_repeating_action_resumes_its_grid(app, clock, ran):
    begun = clock.now()
    await app.schedule("note", Note(text="tick"), id="n", repeat=every(HOUR), at=begun + HOUR)
    clock.advance(timedelta(minutes=10))
    await app.run_now("n")
    await Worker(app).run_due()
    assert ran == ["tick"]
    assert (await app.get("n")).status.scheduled_at == begun + HOUR


async def test_an_anchored_repetition_begins_at_the_next_point_of_its_grid(app, clock, ran):
    await app.schedule(
        "note", Note(text="x"), id="n", repeat=every(HOUR, anchor=datetime(2020, 1, 1, 0, 15, tzinfo=UTC))
    )
    assert (await app.get("n")).status.scheduled_at == clock.now() + timedelta(minutes=15)


async def test_what_is_not_started_in_time_is_not_started(app, clock, ran):
    await app.schedule("note", Note(text="stale"), id="once", start_within=timedelta(minutes=1))
    await app.schedule("note", Note(text="tick"), id="tick", start_within=timedelta(minutes=1), repeat=every(HOUR))
    await app.schedule("note", Note(text="over"), id="over", expires_at=clock.now() + timedelta(minutes=1))
    clock.advance(timedelta(minutes=2))
    await Worker(app).run_due()
    assert ran == []
    assert (await app.get("once")).status.state is State.EXPIRED
    assert (await app.get("over")).status.state is State.EXPIRED
    tick = (await app.get("tick")).status
    assert (tick.state, tick.missed, tick.tick) == (State.LIVE, 1, 1)
    clock.advance(timedelta(minutes=58))
    await Worker(app).run_due()
    assert ran == ["tick"]


async def test_versions_rise_with_every_change_whatever_the_clock_does(app, clock, ran):
    versions = []
    await app.schedule("note", Note(text="a"), id="n", delay=HOUR)
    for change in range(4):
        versions.append((await app.get("n")).meta.version)
        clock.time -= timedelta(days=change)
        await app.reschedule("n", delay=HOUR)
    assert versions == sorted(set(versions))


async def test_two_installations_in_one_database_do_not_see_each_other(app, database_url, clock, ran):
    other = App(database_url, installation="other", clock=clock)
    await other.init(shards=2)
    async with other:
        await other.schedule("note", {"text": "there"}, id="n")
        await app.schedule("note", Note(text="here"), id="n")
        assert (await other.get("n")).spec.payload == b'{"text":"there"}'
        await Worker(app).run_due()
        assert ran == ["here"]
        assert (await other.get("n")).status.state is State.LIVE


async def test_a_handler_of_another_process_is_scheduled_by_name(app, ran):
    await app.schedule("elsewhere", {"any": ["json", 1, None]}, id="n")
    assert (await app.get("n")).spec.payload == b'{"any":["json",1,null]}'


async def test_a_guid_that_nobody_has_is_a_mismatch(app, ran):
    await app.schedule("note", Note(text="a"), id="n")
    with pytest.raises(GuidMismatch):
        await app.cancel("n", expected_guid=uuid4())
