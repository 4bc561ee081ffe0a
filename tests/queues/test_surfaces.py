"""What can be done with queues is the same in every place: in memory, in the database, in handlers, without await."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest
from support.queue_tasks import CONTRACT, EMAILS, Email
from support.queues import Storage

import matrixsched
from matrixsched import App, queues
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.queues import results
from matrixsched.queues.api import Queues
from matrixsched.queues.database import COUNT_MAX, DatabaseStorage
from matrixsched.queues.ledger import BatchStorage, SyncBatchStorage
from matrixsched.queues.memory import MemoryStorage
from matrixsched.queues.storage import QueueStorage, SyncQueueStorage
from matrixsched.queues.sync import SyncQueues
from matrixsched.queues.wrapper import TellingStorage
from matrixsched.rules.queues import QueueStat
from matrixsched.store.news import News
from matrixsched.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

MINUTE = timedelta(minutes=1)


def methods(kind: type) -> dict[str, Any]:
    return {name: one for name, one in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def shape(method: Any) -> list[tuple[str, object, object, object]]:
    """What it takes and returns; a connection is of another kind where nothing is awaited."""
    signature = inspect.signature(method)
    taken = [
        (one.name, one.kind, one.default, None if one.name == "connection" else one.annotation)
        for one in signature.parameters.values()
    ]
    return [*taken, ("returns", None, None, signature.return_annotation)]


def shapes(kind: type) -> dict[str, Any]:
    return {name: shape(method) for name, method in methods(kind).items()}


@pytest.mark.parametrize("kind", [MemoryStorage, TellingStorage, BatchStorage, SyncQueueStorage, SyncBatchStorage])
def test_every_storage_has_what_the_others_have(kind: type):
    assert shapes(kind) == shapes(QueueStorage)
    is_awaited = {name: inspect.iscoroutinefunction(inspect.unwrap(one)) for name, one in methods(kind).items()}
    assert set(is_awaited.values()) == {kind not in (SyncQueueStorage, SyncBatchStorage)}


@pytest.mark.parametrize("door", [QueueStat, Queues.stat, SyncQueues.stat])
def test_every_door_says_where_counting_stops(door: object):
    assert f"{COUNT_MAX:,}" in (inspect.getdoc(door) or "")


def test_what_a_handler_may_answer_is_where_the_rest_of_queues_is():
    for name in ("BatchResult", "DeadLetter", "Done", "HandlerStats", "ItemResult", "RetryAt", "retry_or_bury"):
        assert name in queues.__all__
        assert getattr(queues, name) is getattr(results, name)
    assert (queues.Done, queues.RetryAt) == (matrixsched.Done, matrixsched.RetryAt)


def test_the_storage_in_the_database_can_do_more():
    """For operators; and its counting can be limited."""
    more = methods(DatabaseStorage).keys() - methods(QueueStorage).keys()
    for_operators = {"put_once", "redrive_old", "purge_old_dead"}
    assert more == {"peek", "retry_now", "purge", "settings", "change_settings"} | for_operators
    ours = shapes(DatabaseStorage)
    assert {name: ours[name] for name in methods(QueueStorage) if name != "stat"} == {
        name: one for name, one in shapes(QueueStorage).items() if name != "stat"
    }


def test_synchronous_code_can_do_with_queues_whatever_asynchronous_code_can():
    awaited = {name for name, one in methods(Queues).items() if inspect.iscoroutinefunction(one)}
    ours = shapes(Queues)
    assert shapes(SyncQueues) == {name: ours[name] for name in awaited}


# Whoever makes work wakes a worker here.


async def test_a_worker_here_is_woken_by_what_makes_work(storage: Storage):
    woken: list[str] = []
    telling = TellingStorage(storage, lambda: woken.append("woken"))
    await telling.put(1, b"a")
    assert len(woken) == 1
    (task,) = await telling.get(1, 1)
    await telling.set_aside([(task, "no use")])
    await telling.pause(1)
    assert len(woken) == 1
    assert await telling.redrive(1) == 1
    assert await telling.resume(1)
    assert len(woken) == 3
    assert (await telling.put_many([]), await telling.redrive(1), await telling.resume(1)) == ([], 0, False)
    assert len(woken) == 3


async def test_each_thousand_tasks_wake_once(clock: ManualClock):
    woken: list[str] = []
    app = App("sqlite:///never-opened.db", clock=clock, queue_storage=MemoryStorage(clock=clock))
    app.queues.use(CONTRACT)
    app.on_news(lambda: woken.append("woken"))
    await app.queues.put_many([Email(to=str(number)) for number in range(1001)])
    assert len(woken) == 2


async def test_who_wants_news_of_queues_alone_is_not_woken_by_actions(database_url: str):
    app, woken = App(database_url), list[str]()
    app.queues.use(CONTRACT)
    app.action("call")(lambda: None)
    app.on_news(lambda: woken.append("queues"), of=News.QUEUES)
    app.on_news(lambda: woken.append("actions"), of=News.ACTIONS)
    await app.init(shards=1)
    async with app:
        await app.schedule("call")
        assert woken == ["actions"]
        await app.queues.put(Email(to="ada"))
    assert woken == ["actions", "queues"]


async def test_a_worker_does_not_look_at_its_queues_for_news_of_actions(database_url: str):
    app, looks = App(database_url), list[bool]()
    app.queues.use(CONTRACT)
    app.queues.handler("emails")(lambda tasks: None)
    worker = Worker(app)
    worker.processors.hear = lambda: looks.append(True)  # type: ignore[method-assign]
    worker._hear(News.ACTIONS)
    assert looks == []
    worker._hear(News.QUEUES)
    worker._hear(News.ANYTHING)
    assert looks == [True, True]


# A plain function has the same storage.


async def test_a_plain_function_can_do_all_of_it(clock: ManualClock):
    storage = MemoryStorage(clock=clock, chance=SeededChance(1))
    app = App("sqlite:///never-opened.db", clock=clock, queue_storage=storage)
    app.queues.use(CONTRACT)
    found: dict[str, Any] = {}

    @app.queues.handler("emails")
    def send(tasks: list[Email], storage: SyncQueueStorage) -> None:
        done, later, dead, kept = tasks
        found["done"] = storage.done(iter([done])).settled
        found["retry"] = storage.retry(iter([(later, MINUTE)])).settled
        found["set_aside"] = storage.set_aside(iter([(dead, "spam")])).settled
        found["extend"] = storage.extend(iter([kept]), visibility=2 * MINUTE).settled
        found["letters"] = [letter.reason for letter in storage.dead_letters(EMAILS)]
        found["redrive"] = storage.redrive(EMAILS, ids=iter([dead.task_id]))
        found["pause"] = storage.pause(EMAILS)
        found["get, paused"] = storage.get(EMAILS, 10)
        found["resume"] = storage.resume(EMAILS)
        (again,) = storage.get(EMAILS, 10, visibility=MINUTE)
        storage.set_aside([(again, "spam again")])
        found["purge_dead"] = storage.purge_dead(EMAILS, ids=iter([again.id]))
        found["total"] = storage.stat()[EMAILS].total

    ids = await app.queues.put_many([Email(to=one) for one in "abcd"])
    await Worker(app, only_queues=True).processors.run_ready()
    assert found == {
        "done": {ids[0]},
        "retry": {ids[1]},
        "set_aside": {ids[2]},
        "extend": {ids[3]},
        "letters": ["spam"],
        "redrive": 1,
        "pause": True,
        "get, paused": [],
        "resume": True,
        "purge_dead": 1,
        "total": 2,
    }
