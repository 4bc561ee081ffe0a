"""The daemon as a whole: it wakes, works, survives its database and stops in order. No test waits for time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

import anyio
import pytest
from support.drivers import with_options

from matrixsched import App, State
from matrixsched.errors import (
    BadInput,
    ConfigurationError,
    DatabaseBusy,
    DatabaseUnavailable,
    HandlersLeaked,
    OutcomeUnknown,
)
from matrixsched.events import Events, HandlerLeaked, OutcomesRecorded, StepFailed, WorkerStopped
from matrixsched.rules.retention import FINISHED, KEEP_DEFAULT
from matrixsched.store.sqlite.store import SqliteStore
from matrixsched.store.transition import Transition
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

T = TypeVar("T")
E = TypeVar("E")
SECOND = timedelta(seconds=1)
DEADLINE_S = 20


@pytest.fixture
async def app(database_url: str, anyio_backend: str) -> AsyncIterator[App]:
    """In real time: the daemon has threads, and the database its own clock."""
    app = App(database_url)
    await app.init(shards=4)
    async with app:
        yield app


@asynccontextmanager
async def seen(events: Events, kind: type[E], count: int = 1) -> AsyncIterator[list[E]]:
    """Leave the block only after that many events of the kind were seen."""
    found: list[E] = []
    enough = anyio.Event()

    def note(event: E) -> None:
        found.append(event)
        if len(found) >= count:
            enough.set()

    events.subscribe(kind, note)
    yield found
    with anyio.fail_after(DEADLINE_S):
        await enough.wait()


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(DEADLINE_S):
            await worker.running.wait()
        yield
        worker.stop()


async def until(app: App, id: str, state: State) -> None:
    with anyio.fail_after(DEADLINE_S):
        while (await app.get(id)).status.state is not state:
            await anyio.lowlevel.checkpoint()


async def test_an_idle_worker_is_woken_by_news(app):
    ran = anyio.Event()

    @app.action("work")
    async def work() -> None:
        ran.set()

    # A rest so long that only a wake-up can end it in time.
    async with running(Worker(app, WorkerPolicy(rest_max=timedelta(hours=1)))):
        await app.schedule(work, id="w")
        with anyio.fail_after(DEADLINE_S):
            await ran.wait()
        await until(app, "w", State.DONE)


@pytest.mark.direct("LISTEN needs a session")
async def test_news_from_another_process_wake_a_worker_too(app, database_url):
    ran = anyio.Event()

    @app.action("work")
    async def work() -> None:
        ran.set()

    worker = Worker(app, WorkerPolicy(rest_max=timedelta(hours=1)))
    async with running(worker), App(database_url) as elsewhere:
        await elsewhere.schedule("work", id="w")
        with anyio.fail_after(DEADLINE_S):
            await ran.wait()


def deaf_app(url: str) -> App:
    """One that is not told by the database when others have written."""
    if url.startswith("sqlite"):
        return App(url, store=SqliteStore(url.removeprefix("sqlite:///"), "default", watch_every_s=3600))
    return App(with_options(url, listen="off"))


async def test_without_any_wake_up_polling_makes_it_right(app, database_url):
    ran = anyio.Event()
    deaf = deaf_app(database_url)

    @deaf.action("work")
    async def work() -> None:
        ran.set()

    async with deaf, running(Worker(deaf, WorkerPolicy(rest_max=SECOND / 5))):
        await app.schedule("work", id="w")
        with anyio.fail_after(DEADLINE_S):
            await ran.wait()


async def test_a_worker_sleeps_until_the_next_action_is_due(app):
    started = anyio.Event()
    late: list[timedelta] = []

    @app.action("work")
    async def work(context) -> None:
        late.append(context.deadline - timedelta(seconds=60) - context.scheduled_at)
        started.set()

    await app.schedule(work, id="w", delay=SECOND)
    async with running(Worker(app, WorkerPolicy(rest_max=timedelta(hours=1)))):
        with anyio.fail_after(DEADLINE_S):
            await started.wait()
    assert timedelta(0) <= late[0] < timedelta(seconds=0.9)


async def test_a_stop_lets_handlers_finish_and_records_them(app):
    release, begun = anyio.Event(), anyio.Event()

    @app.action("work")
    async def work() -> None:
        begun.set()
        await release.wait()

    await app.schedule(work, id="w")
    worker = Worker(app)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await begun.wait()
        worker.stop()
        release.set()
    assert (await app.get("w")).status.state is State.DONE


async def test_a_stop_at_once_cancels_handlers_and_makes_their_rows_due_at_once(app):
    begun = anyio.Event()

    @app.action("work")
    async def work() -> None:
        begun.set()
        await anyio.sleep_forever()

    await app.schedule(work, id="w")
    worker = Worker(app)
    async with seen(app.events, WorkerStopped) as stopped, anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await begun.wait()
        worker.stop(at_once=True)
    assert stopped[0].cancelled == 1
    status = (await app.get("w")).status
    assert (status.state, status.running, status.interrupted, status.failed) == (State.LIVE, False, 1, 0)
    assert all(not shard.locked for shard in await app.shards())


async def test_a_stop_gives_back_what_was_not_started(app):
    begun = anyio.Event()

    @app.action("work")
    async def work() -> None:
        begun.set()
        await anyio.sleep_forever()

    await app.schedule_many([call_of(id) for id in "abcdef"])
    worker = Worker(app, WorkerPolicy(concurrency=1))
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await begun.wait()
        worker.stop(at_once=True)
    statuses = [action.status for action in await app.list()]
    assert sum(status.interrupted for status in statuses) == 1
    assert not any(status.running for status in statuses)


def call_of(id: str):
    from matrixsched import call

    return call("work", id=id)


async def test_a_thread_that_ignores_its_limit_is_counted_and_ends_the_worker_when_too_many_do(app):
    import threading

    release = threading.Event()

    @app.action("stuck", timeout=timedelta(milliseconds=50))
    def stuck() -> None:
        release.wait(DEADLINE_S)

    await app.schedule(stuck, id="s")
    policy = WorkerPolicy(concurrency=1, timeout_grace=timedelta(milliseconds=50), rest_max=SECOND / 10)
    try:
        with pytest.RaisesGroup(HandlersLeaked) as given_up:
            async with seen(app.events, HandlerLeaked), anyio.create_task_group() as group:
                group.start_soon(Worker(app, policy).run)
        assert "supervisor" in str(given_up.value.exceptions[0])
    finally:
        release.set()


class Flaky:
    """A store whose next runs of some transitions fail."""

    def __init__(self, app: App) -> None:
        self.failures: dict[str, list[Exception]] = {}
        self.after: dict[str, list[Exception]] = {}
        self._run = app.store.run
        app.store.run = self.run  # type: ignore[method-assign]

    async def run(self, transition: Transition[T]) -> T:
        if before := self.failures.get(transition.name):
            raise before.pop(0)
        answer = await self._run(transition)
        if after := self.after.get(transition.name):
            raise after.pop(0)
        return answer


async def test_a_database_that_was_away_is_no_reason_to_exit(app):
    ran = anyio.Event()

    @app.action("work")
    async def work() -> None:
        ran.set()

    flaky = Flaky(app)
    flaky.failures["acquire_shard"] = [DatabaseUnavailable("away") for _ in range(3)]
    flaky.failures["record"] = [DatabaseUnavailable("away") for _ in range(2)]
    await app.schedule(work, id="w")
    async with seen(app.events, StepFailed, 5) as failed, running(Worker(app)):
        await until(app, "w", State.DONE)
    assert {event.step for event in failed} == {"intake", "record"}
    assert (await app.get("w")).status.succeeded == 1


async def test_who_looks_for_work_tries_again_as_often_as_at_rest_however_long_the_database_is_away(app):
    @app.action("work")
    async def work() -> None: ...

    Flaky(app).failures["acquire_shard"] = [DatabaseUnavailable("away") for _ in range(8)]
    await app.schedule(work, id="w")
    policy = WorkerPolicy(rest_max=SECOND * 0.1)
    async with seen(app.events, StepFailed, 8) as failed, running(Worker(app, policy)):
        await until(app, "w", State.DONE)
    assert [event.failures for event in failed if event.step == "intake"] == list(range(1, 9))
    assert max(event.rest_s for event in failed) <= 0.1


async def test_a_refused_outcome_is_sent_again_often_within_the_margin_of_its_lease(app):
    """A handler that ignored its limit is judged no earlier."""

    @app.action("work")
    async def work() -> None: ...

    flaky = Flaky(app)
    flaky.failures["record"] = [DatabaseBusy("refused") for _ in range(5)]
    await app.schedule(work, id="w")
    policy = WorkerPolicy(attempt_lease=SECOND * 4, lease_margin=SECOND * 0.4)
    async with seen(app.events, StepFailed, 5) as failed, running(Worker(app, policy)):
        await until(app, "w", State.DONE)
    assert sum(event.rest_s for event in failed[:4]) < 0.4
    assert max(event.rest_s for event in failed) <= 0.1


@pytest.mark.parametrize("lost", ["claim", "move", "record", "release_shard", "acquire_shard"])
async def test_an_answer_that_was_lost_costs_nothing(app, lost):
    runs = 0

    @app.action("work")
    async def work() -> None:
        nonlocal runs
        runs += 1

    flaky = Flaky(app)
    flaky.after[lost] = [OutcomeUnknown("no answer")]
    await app.schedule(work, id="w", delay=SECOND / 10)
    policy = WorkerPolicy(shard_lease=SECOND * 3, heartbeat=SECOND, rest_max=SECOND / 10)
    async with seen(app.events, OutcomesRecorded), running(Worker(app, policy)):
        await until(app, "w", State.DONE)
    status = (await app.get("w")).status
    assert (runs, status.succeeded, status.interrupted, status.failed) == (1, 1, 0, 0)


async def test_a_schedule_whose_answer_was_lost_is_sent_again_and_done_once(app):
    flaky = Flaky(app)
    flaky.after["schedule"] = [OutcomeUnknown("no answer")]
    first = await app.schedule("work", id="w")
    assert (first.created, first.changed) == (True, True)
    assert (await app.get("w")).meta.guid == first.guid
    flaky.after["reschedule"] = [OutcomeUnknown("no answer"), OutcomeUnknown("again")]
    moved = await app.reschedule("w", delay=SECOND)
    action = await app.get("w")
    assert (action.meta.guid, action.meta.revision) == (moved.guid, 2)
    flaky.after["cancel"] = [OutcomeUnknown("no answer")]
    assert (await app.cancel("w")).changed
    assert sum(shard.incoming for shard in await app.shards()) == 2


async def test_a_worker_without_handlers_is_refused(app):
    with pytest.raises(BadInput, match="no handlers"):
        Worker(app)


def test_a_policy_that_contradicts_itself_names_all_faults_at_once():
    with pytest.raises(ConfigurationError) as refused:
        WorkerPolicy(concurrency=0, heartbeat=SECOND * 9, lease_margin=SECOND * 5)
    assert len(refused.value.faults) == 3
    assert "heartbeat (9 s) must be at most a third of shard_lease (10 s)" in str(refused.value)


def test_a_policy_of_wrong_types_names_all_of_them_at_once():
    with pytest.raises(ConfigurationError) as refused:
        WorkerPolicy(concurrency=1.5, heartbeat=3, leaked_max=True, queues_idle_until_told="yes")
    assert refused.value.faults == (
        "concurrency is 1.5: choose a whole number",
        "heartbeat is 3: choose a timedelta",
        "leaked_max is True: choose a number",
        "queues_idle_until_told is 'yes': choose True or False",
    )


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"keep_failed": -SECOND}, "keep_failed is -1 day, 23:59:59: choose zero to 3653 days"),
        ({"keep_done": timedelta.max}, "keep_done is 999999999 days"),
        ({"keep_requests": SECOND}, r"keep_requests \(1 s\) must be at least 300 s"),
        ({"attempt_lease": timedelta(hours=1)}, r"attempt_lease \(3600 s\) must be at most 600 s"),
        ({"tidy_every": timedelta(0)}, "tidy_every must be more than zero"),
        ({"tidy_batch": 0}, "tidy_batch is 0: choose 1 to 10000"),
        ({"history_max": 0}, "history_max is 0: choose 1 to 1000000"),
    ],
    ids=str,
)
def test_a_policy_that_would_tidy_away_too_much_or_nothing_is_refused(settings, fault):
    with pytest.raises(ConfigurationError, match=fault):
        WorkerPolicy(**settings)


def test_each_state_has_a_time_for_which_it_is_kept():
    assert WorkerPolicy().retention == KEEP_DEFAULT
    named = {f"keep_{state}": SECOND * number for number, state in enumerate(FINISHED)}
    assert WorkerPolicy(**named).retention == {state: SECOND * number for number, state in enumerate(FINISHED)}
