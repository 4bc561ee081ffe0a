"""The synchronous facade in transactions of its own, from plain threads, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import anyio
import pytest

from matrixsched import App, State, call, every
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import (
    ActionExists,
    ActionFinished,
    ActionNotFound,
    DatabaseUnavailable,
    GuidMismatch,
    InvalidDuration,
    InvalidId,
    SchemaMissing,
)
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.worker import Worker

HOUR = timedelta(hours=1)


@pytest.fixture
def app(database_url: str, clock: ManualClock) -> Iterator[App]:
    """Not opened: synchronous calls connect by themselves."""
    app = App(database_url, clock=clock, chance=SeededChance(1))
    app.sync.init(shards=4)
    yield app
    app.sync.close()


def test_every_operation_works_without_an_event_loop(app, clock):
    first = app.sync.schedule("note", {"text": "tea"}, id="tea", delay=HOUR, priority=3)
    assert (first.created, first.changed, first.running) == (True, True, False)
    action = app.sync.get("tea")
    assert (action.meta.guid, action.spec.payload, action.spec.priority) == (first.guid, b'{"text":"tea"}', 3)
    assert action.status.scheduled_at == clock.now() + HOUR

    moved = app.sync.reschedule("tea", at=clock.now() + 2 * HOUR, expected_guid=first.guid)
    assert app.sync.get("tea").status.scheduled_at == clock.now() + 2 * HOUR
    assert app.sync.run_now("tea", expected_guid=moved.guid).changed
    assert app.sync.get("tea").status.scheduled_at == clock.now()
    replaced = app.sync.schedule("note", id="tea", expected_guid=app.sync.get("tea").meta.guid)
    assert (replaced.created, replaced.changed) == (False, True)
    assert not app.sync.schedule("note", id="tea", exists="keep").changed

    assert app.sync.cancel("tea").changed
    assert app.sync.get("tea").status.state is State.CANCELLED
    assert not app.sync.cancel("tea").changed
    assert app.sync.run_now("tea").changed
    assert app.sync.get("tea").status.state is State.LIVE


def test_a_repetition_begins_on_the_databases_clock(app, clock):
    app.sync.schedule("note", id="tick", repeat=every(HOUR), delay=HOUR)
    assert app.sync.get("tick").status.scheduled_at == clock.now() + HOUR


def test_the_same_request_takes_effect_once(app):
    first = app.sync.schedule("note", id="n", request_id="r")
    again = app.sync.schedule("note", id="n", request_id="r")
    assert (again.changed, again.guid) == (False, first.guid)


def test_many_are_scheduled_in_batches_drawn_in_the_callers_thread(app):
    drawn_in: set[int] = set()
    progress: list[int] = []

    def calls():
        for number in range(1500):
            drawn_in.add(threading.get_ident())
            yield call("note", number, id=f"n{number:04}")

    many = app.sync.schedule_many(calls(), progress=progress.append)
    assert (many.total, many.created, many.replaced, many.kept) == (1500, 1500, 0, 0)
    assert progress == [1000, 1500]
    assert drawn_in == {threading.get_ident()}
    again = app.sync.schedule_many([call("note", id="n0000"), call("note", id="new")], exists="keep")
    assert (again.created, again.replaced, again.kept) == (1, 0, 1)


def test_lists_filter_and_page(app):
    app.sync.schedule_many(call("note", id=f"n{number}") for number in range(5))
    app.sync.schedule("other", id="other", delay=HOUR)
    app.sync.cancel("n3")
    first = app.sync.list(limit=4)
    rest = app.sync.list(after=first[-1], limit=4)
    assert sorted(action.id for action in first + rest) == ["n0", "n1", "n2", "n3", "n4", "other"]
    assert [action.id for action in app.sync.list(state=State.CANCELLED)] == ["n3"]
    assert [action.id for action in app.sync.list(handler="other")] == ["other"]


def test_init_is_safe_to_repeat_and_needs_no_connection(app):
    assert app.sync.init(shards=64) == []
    app.sync.schedule("note", id="n")
    assert app.sync.init() == []
    assert app.sync.get("n").id == "n"


class Counted:
    """A store that counts what is sent."""

    def __init__(self, store: Store, sent: list[str]) -> None:
        self._store, self._sent = store, sent

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def sibling(self) -> Counted:
        return Counted(self._store.sibling(), self._sent)

    async def run(self, transition: Transition):
        self._sent.append(transition.name)
        return await self._store.run(transition)


def in_threads(count: int, work: Callable[[int], object]) -> list[object]:
    """What each of `count` threads gets that begin at the same moment."""
    together = threading.Barrier(count)

    def begin(number: int) -> object:
        together.wait(timeout=30)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


_others: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def leave_out_threads_of_others() -> None:
    """Clients of web frameworks keep theirs, if tests of those ran before in this process."""
    _others.clear()
    _others.update(threading.enumerate())


def event_loops() -> int:
    """How many run in the background; the threads of the facade are called after anyio's portals."""
    return sum("portal" in thread.name for thread in threading.enumerate() if thread not in _others)


def test_threads_share_one_connection_and_their_calls_go_together(app, database_url, clock):
    sent: list[str] = []
    counted = App(database_url, clock=clock, store=Counted(app.store, sent))
    with counted.sync:

        def schedule_some(thread: int) -> int:
            for number in range(20):
                counted.sync.schedule("note", id=f"n{thread}-{number}")
            return len(counted.sync.list(id_prefix=f"n{thread}-"))

        assert in_threads(16, schedule_some) == [20] * 16
    assert len(app.sync.list(limit=1000)) == 320
    assert sent.count("schedule") < 320
    assert sent.count("installation") == 1


def test_threads_that_call_for_one_id_leave_one_action(app):
    answers = in_threads(8, lambda number: app.sync.schedule("note", number, id="n"))
    assert sum(answer.created for answer in answers) == 1
    assert app.sync.get("n").meta.guid in {answer.guid for answer in answers}
    assert app.sync.get("n").meta.revision == 8


def test_of_threads_that_insist_on_creating_one_succeeds(app):
    def create(number: int) -> bool:
        try:
            return app.sync.schedule("note", number, id="n", exists="error").created
        except ActionExists:
            return False

    assert sum(in_threads(8, create)) == 1


def test_the_first_calls_of_several_threads_open_it_once(app):
    in_threads(8, lambda number: app.sync.schedule("note", id=f"n{number}"))
    assert event_loops() == 1


def test_nothing_connects_before_the_first_call(database_url):
    app = App("postgresql://127.0.0.1:1/nowhere" if "postgresql" in database_url else "sqlite:////nowhere/at.all")
    assert event_loops() == 0
    with pytest.raises(DatabaseUnavailable):
        app.sync.schedule("note", id="n")
    assert event_loops() == 0


def test_as_a_context_manager_it_connects_at_once_and_closes_at_the_end(app):
    with app.sync as sync:
        assert sync is app.sync
        assert event_loops() == 1
        sync.schedule("note", id="n")
    assert event_loops() == 0


def test_it_connects_again_after_it_was_closed(app):
    app.sync.schedule("note", id="a")
    app.sync.close()
    app.sync.close()
    app.sync.schedule("note", id="b")
    with app.sync:
        assert len(app.sync.list()) == 2
    assert app.sync.get("a").id == "a"


def test_a_database_that_could_not_be_used_at_first_is_tried_again(database_url, clock):
    app = App(database_url, clock=clock)
    with pytest.raises(SchemaMissing):
        app.sync.schedule("note", id="n")
    app.sync.init(shards=4)
    assert app.sync.schedule("note", id="n").created
    app.sync.close()


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (ActionNotFound, lambda sync: sync.get("nobody")),
        (ActionNotFound, lambda sync: sync.cancel("nobody")),
        (ActionExists, lambda sync: sync.schedule("note", id="n", exists="error")),
        (GuidMismatch, lambda sync: sync.cancel("n", expected_guid=SeededChance(2).guid())),
        (ActionFinished, lambda sync: (sync.cancel("n"), sync.reschedule("n"))),
        (InvalidId, lambda sync: sync.schedule("note", id="")),
        (InvalidDuration, lambda sync: sync.schedule("note", delay=-HOUR)),
        (InvalidId, lambda sync: sync.schedule_many([call("note", id="\0")])),
    ],
)
def test_errors_are_those_of_the_asynchronous_calls(app, error, wrong):
    app.sync.schedule("note", id="n")
    with pytest.raises(error):
        wrong(app.sync)
    assert app.sync.get("n").id == "n"


def test_an_error_of_one_thread_is_nobody_elses(app):
    def schedule(number: int) -> str:
        try:
            return app.sync.schedule("note", id="" if number % 2 else f"n{number}").id
        except InvalidId:
            return "refused"

    assert in_threads(8, schedule) == ["n0", "refused", "n2", "refused", "n4", "refused", "n6", "refused"]


@pytest.mark.anyio
async def test_inside_a_running_event_loop_it_works_but_blocks_that_loop(app):
    """Synchronous means just that: the loop stands still meanwhile, `await app.schedule()` is what to use there."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(turn)
        await anyio.lowlevel.checkpoint()
        before = turns
        assert app.sync.schedule("note", id="n").created
        assert turns == before
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_asynchronous_and_synchronous_calls_work_side_by_side(app):
    async with app:
        await app.schedule("note", id="async")
        await anyio.to_thread.run_sync(lambda: app.sync.schedule("note", id="sync"))
        assert {action.id for action in await app.list()} == {"async", "sync"}


@pytest.mark.anyio
async def test_what_was_scheduled_synchronously_runs(app):
    ran: list[str] = []

    @app.action("note")
    def note(text: str) -> None:
        # A handler runs in a thread, and may itself schedule.
        ran.append(text)
        if text == "first":
            app.sync.schedule("note", "second", id="second")

    await anyio.to_thread.run_sync(lambda: app.sync.schedule(note, "first", id="first"))
    async with app:
        worker = Worker(app)
        for _ in range(2):
            await worker.run_due()
    assert ran == ["first", "second"]


@pytest.mark.anyio
async def test_workers_are_woken_in_their_own_thread_only(app):
    """An event set from another thread goes unnoticed by its loop, or worse; the database itself tells them soon."""
    woken_in: list[int] = []
    app.on_news(lambda: woken_in.append(threading.get_ident()))
    async with app:
        await app.schedule("note", id="async")
        await anyio.to_thread.run_sync(lambda: app.sync.schedule("note", id="sync"))
        await anyio.to_thread.run_sync(lambda: app.sync.cancel("sync"))
    assert woken_in == [threading.get_ident()]
