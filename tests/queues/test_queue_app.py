"""Queues through the application and its worker: put, handled, set aside, put back; beside actions, and alone."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry
from support.queue_tasks import CONTRACT, EMAILS, Email, Sms, contract_of

from matrixsched import App, State
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import BadInput, InvalidDuration, InvalidTime, TaskTooLarge, UnknownQueue
from matrixsched.events import BacklogSampled, BatchEnded, WorkerStarted
from matrixsched.observe import Metrics
from matrixsched.observe.logs import Logs
from matrixsched.queues import put_into, task_class
from matrixsched.queues.memory import MemoryStorage
from matrixsched.queues.results import DeadLetter
from matrixsched.queues.storage import QueueStorage
from matrixsched.rules.queues import DATA_BYTES_MAX, Settled, Taken
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

SECOND = timedelta(seconds=1)
DEADLINE_S = 20


@pytest.fixture
def app(clock: ManualClock) -> App:
    """Not opened: its queues are in memory."""
    app = App(
        "sqlite:///never-opened.db", clock=clock, queue_storage=MemoryStorage(clock=clock, chance=SeededChance(1))
    )
    app.queues.use(CONTRACT)
    return app


@pytest.fixture
async def installed(database_url: str, anyio_backend: str) -> App:
    """In real time: its actions are in the database, its queues in memory."""
    app = App(database_url, queue_storage=MemoryStorage())
    app.queues.use(CONTRACT)
    await app.init(shards=4)
    return app


# Putting.


async def test_a_task_is_put_now_at_a_time_or_after_a_delay(app: App, clock: ManualClock):
    await app.queues.put(Email(to="ada"))
    await app.queues.put(Email(to="bob"), delay=5 * SECOND)
    await app.queues.put(Email(to="eve"), at=clock.now() + 10 * SECOND)
    stats = await app.queues.stat()
    assert (stats["emails"].ready, stats["emails"].delayed) == (1, 2)
    assert (stats["sms"].queue, stats["sms"].total) == (2, 0)
    clock.advance(5 * SECOND)
    assert (await app.queues.stat())["emails"].ready == 2


async def test_many_are_put_at_once_into_several_queues(app: App):
    tasks: list[Any] = [Email(to=str(number)) for number in range(2500)]
    ids = await app.queues.put_many([*tasks, Sms(number=1)])
    assert len(set(ids)) == 2501
    assert ids == sorted(ids)
    stats = await app.queues.stat()
    assert (stats["emails"].total, stats["sms"].total) == (2500, 1)
    assert await app.queues.put_many([]) == []


Unknown: Any = task_class(contract_of(9, "letters", "to"))


@pytest.mark.parametrize(
    ("task", "terms", "error"),
    [
        (Unknown(to="ada"), {}, UnknownQueue),
        ("ada", {}, BadInput),
        (Email(to="x" * DATA_BYTES_MAX), {}, TaskTooLarge),
        (Email(to="ada"), {"delay": -SECOND}, InvalidDuration),
        (Email(to="ada"), {"at": 7}, InvalidTime),
        (Email(to="ada"), {"delay": SECOND, "at": ManualClock().now()}, BadInput),
        (Email(to="ada"), {"connection": object()}, BadInput),
    ],
)
async def test_what_is_wrong_is_refused_and_nothing_is_put(app: App, task: Any, terms: dict[str, Any], error: type):
    with pytest.raises(error):
        await app.queues.put_many([Email(to="fine"), task], **terms)
    assert (await app.queues.stat())["emails"].total == 0


async def test_an_unknown_queue_is_named_with_those_that_are_known(app: App):
    with pytest.raises(UnknownQueue, match="'leters'; it has: emails, sms"):
        await app.queues.dead_letters("leters")


# Dead letters, pauses.


async def test_dead_letters_are_shown_put_back_and_purged(app: App):
    ids = await app.queues.put_many([Email(to=str(number)) for number in range(4)])
    tasks = await app.queues.storage.get(EMAILS, 10)
    await app.queues.storage.set_aside([(task, "spam") for task in tasks])
    first, second = await app.queues.dead_letters("emails", limit=2)
    assert [first.id, second.id] == ids[:2]
    assert [letter.id for letter in await app.queues.dead_letters("emails", after=second.id)] == ids[2:]
    assert await app.queues.redrive("emails", ids=[ids[0]]) == 1
    assert await app.queues.purge_dead("emails", ids=[ids[1], 999]) == 1
    assert await app.queues.redrive("emails") == 2
    stat = (await app.queues.stat())["emails"]
    assert (stat.ready, stat.dead) == (3, 0)
    for wrong in ({"limit": 0}, {"ids": ["x"]}):
        with pytest.raises(BadInput):
            await app.queues.redrive("emails", **wrong)  # type: ignore[arg-type]


async def test_a_paused_queue_hands_out_nothing(app: App):
    await app.queues.put(Email(to="ada"))
    assert (await app.queues.pause("emails"), await app.queues.pause("emails")) == (True, False)
    assert await app.queues.storage.get(EMAILS, 10) == []
    assert (await app.queues.resume("emails"), await app.queues.resume("emails")) == (True, False)
    assert len(await app.queues.storage.get(EMAILS, 10)) == 1


def test_the_same_from_synchronous_code(database_url: str):
    app = App(database_url, queue_storage=MemoryStorage())
    app.queues.use(CONTRACT)
    app.sync.init(shards=4)
    with app.sync as sync:
        sync.queues.put(Email(to="ada"))
        assert len(sync.queues.put_many((Sms(number=number) for number in range(3)), delay=SECOND)) == 3
        assert (sync.queues.stat()["emails"].ready, sync.queues.stat()["sms"].delayed) == (1, 3)
        assert (sync.queues.pause("sms"), sync.queues.resume("sms")) == (True, True)
        assert (sync.queues.redrive("sms"), sync.queues.purge_dead("sms"), sync.queues.dead_letters("sms")) == (
            0,
            0,
            [],
        )
        with pytest.raises(BadInput, match="knows no transactions"):
            sync.queues.put(Email(to="ada"), connection=object())  # type: ignore[arg-type]


async def test_actions_do_not_become_tasks_of_queues_that_are_not_in_the_database(installed: App):
    async with installed as app:
        for task in (Email(to="ada"), None):
            with pytest.raises(BadInput, match="but this App keeps its queues in a MemoryStorage: put the task itself"):
                await app.schedule(put_into("emails"), task)
        assert await app.list() == []


# The worker.


async def test_a_worker_runs_actions_and_batches_beside_each_other(installed: App):
    ran, sent, started = anyio.Event(), anyio.Event(), []
    installed.events.subscribe(WorkerStarted, started.append)

    @installed.action("work")
    async def work() -> None:
        await installed.queues.put(Email(to="ada"))
        ran.set()

    @installed.queues.handler("emails")
    async def send(tasks: list[Email]) -> None:
        assert [task.to for task in tasks] == ["ada"]
        sent.set()

    async with Worker(installed):
        await installed.schedule(work, id="w")
        with anyio.fail_after(DEADLINE_S):
            await ran.wait()
            await sent.wait()
    async with installed:
        assert (await installed.get("w")).status.state is State.DONE
    assert (await installed.queues.stat())["emails"].total == 0
    assert (started[0].handlers, started[0].queues) == (("work",), ("emails",))


async def test_a_worker_for_queues_alone_leaves_actions_to_others(installed: App):
    sent, started = anyio.Event(), []
    installed.events.subscribe(WorkerStarted, started.append)

    @installed.action("work")
    async def work() -> None:
        pytest.fail("it is for others")

    @installed.queues.handler("emails")
    async def send(tasks: list[Email]) -> None:
        sent.set()

    async with Worker(installed, only_queues=True) as worker:
        await installed.schedule(work, id="w")
        await installed.queues.put(Email(to="ada"))
        with anyio.fail_after(DEADLINE_S):
            await sent.wait()
        assert worker.looked_at is not None
    async with installed:
        assert (await installed.get("w")).status.state is State.LIVE
    assert (started[0].handlers, started[0].queues) == ((), ("emails",))


async def test_a_worker_of_queues_alone_has_no_slots_and_tells_that_actions_wait(installed: App):
    registry, sampled = CollectorRegistry(), anyio.Event()
    Metrics(installed, registry=registry)
    installed.events.subscribe(BacklogSampled, lambda event: sampled.set())
    installed.queues.handler("emails")(lambda tasks: None)
    async with installed:
        past = datetime.now(UTC) - timedelta(minutes=9)
        await installed.schedule("work", at=past)
        async with Worker(installed, only_queues=True):
            with anyio.fail_after(DEADLINE_S):
                await sampled.wait()
    assert registry.get_sample_value("matrixsched_worker_slots") == 0
    assert registry.get_sample_value("matrixsched_due_actions") == 1
    assert (registry.get_sample_value("matrixsched_oldest_open_seconds") or 0) >= 540


async def test_a_worker_without_processors_leaves_queues_to_others(installed: App):
    ran = anyio.Event()

    @installed.action("work")
    async def work() -> None:
        ran.set()

    @installed.queues.handler("emails")
    async def send(tasks: list[Email]) -> None:
        pytest.fail("it is for others")

    await installed.queues.put(Email(to="ada"))
    async with Worker(installed, WorkerPolicy(processors=0)):
        await installed.schedule(work)
        with anyio.fail_after(DEADLINE_S):
            await ran.wait()
    assert (await installed.queues.stat())["emails"].ready == 1


def test_a_worker_with_nothing_to_do_says_what_is_missing(app: App):
    with pytest.raises(BadInput, match="no handlers: register some with @app.action"):
        Worker(app)
    with pytest.raises(BadInput, match="no handlers of queues"):
        Worker(app, only_queues=True)
    app.queues.handler("emails")(lambda tasks: None)
    with pytest.raises(BadInput, match="processors is 0"):
        Worker(app, WorkerPolicy(processors=0), only_queues=True)


class Noticing(MemoryStorage):
    """In memory; it notices when tasks were prolonged."""

    def __init__(self) -> None:
        super().__init__()
        self.prolonged: queue.SimpleQueue[int] = queue.SimpleQueue()

    async def extend(
        self, tasks: Iterable[Taken], *, visibility: timedelta = 60 * SECOND, only_longer: bool = False
    ) -> Settled:
        answer = await super().extend(tasks, visibility=visibility, only_longer=only_longer)
        self.prolonged.put(threading.get_ident())
        return answer


async def test_a_handler_that_blocks_the_event_loop_does_not_lose_its_tasks(database_url: str):
    storage, ended, threads = Noticing(), anyio.Event(), set[int]()
    app = App(database_url, queue_storage=storage)
    app.queues.use(CONTRACT)
    await app.init(shards=4)
    batches: list[BatchEnded] = []

    @app.on(BatchEnded)
    def end(event: BatchEnded) -> None:
        batches.append(event)
        ended.set()

    @app.queues.handler("emails", visibility=SECOND)
    async def block(tasks: list[Email]) -> None:
        for _ in range(4):  # longer than its timeout, and without an await
            threads.add(storage.prolonged.get(timeout=DEADLINE_S))

    await app.queues.put(Email(to="ada"))
    async with Worker(app):
        with anyio.fail_after(DEADLINE_S):
            await ended.wait()
    assert threads
    assert threading.get_ident() not in threads
    assert (batches[0].processed, batches[0].stale) == (1, 0)


async def test_a_worker_that_stops_gives_back_what_it_cannot_finish(installed: App):
    began = anyio.Event()

    @installed.queues.handler("emails")
    async def send(tasks: list[Email], storage: QueueStorage) -> None:
        await storage.set_aside([(tasks[0], "spam")])
        began.set()
        await anyio.sleep_forever()

    await installed.queues.put_many([Email(to="ada"), Email(to="bob")])
    with anyio.fail_after(DEADLINE_S):
        async with Worker(installed, WorkerPolicy(stop_grace=timedelta(0))):
            await began.wait()
    stat = (await installed.queues.stat())["emails"]
    assert (stat.ready, stat.dead) == (1, 1)
    (again,) = await installed.queues.storage.get(EMAILS, 10)
    assert again.attempts == 1


async def test_a_stop_waits_for_a_handler_within_its_grace(installed: App):
    began, may_end = anyio.Event(), anyio.Event()

    @installed.queues.handler("emails")
    async def send(tasks: list[Email]) -> None:
        began.set()
        await may_end.wait()

    await installed.queues.put(Email(to="ada"))
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group, Worker(installed) as worker:
            await began.wait()

            async def end_once_it_stops() -> None:
                await worker.stopping.wait()
                may_end.set()

            group.start_soon(end_once_it_stops)
    assert (await installed.queues.stat())["emails"].total == 0


# Logs.


async def test_logs_name_queues_and_kinds_and_nothing_that_tasks_or_handlers_say(
    app: App, caplog: pytest.LogCaptureFixture
):
    Logs(app.events)
    secrets = iter([ValueError("hunter2")])

    @app.queues.handler("emails")
    def send(tasks: list[Email]) -> DeadLetter:
        for secret in secrets:
            raise secret
        return DeadLetter("hunter2")

    await app.queues.put(Email(to="hunter2"))
    worker = Worker(app, only_queues=True)
    with caplog.at_level("DEBUG", logger="matrixsched"):
        await worker.processors.run_ready()
        app.clock.advance(60 * SECOND)  # type: ignore[attr-defined]
        await worker.processors.run_ready()
    facts = [(record.message, record.matrixsched_facts) for record in caplog.records]  # type: ignore[attr-defined]
    assert "hunter2" not in repr(facts)
    failed = next(said for message, said in facts if message.startswith("handler of a queue failed"))
    assert failed["queue"] == "emails"
    assert failed["error"].startswith("ValueError in send (test_queue_app.py:")
    assert [said["task"] for message, said in facts if message == "task set aside"] == [1]


def test_queues_that_are_not_in_the_database_have_no_manager_to_wait_for(app: App):
    app.queues.handler("emails")(lambda tasks: None)
    with pytest.raises(BadInput, match="queues_idle_until_told waits for a manager"):
        Worker(app, WorkerPolicy(queues_idle_until_told=True))
