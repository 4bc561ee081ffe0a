"""A batch: what its handler gets, what becomes of what it returns, and what cannot be read."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import pytest
from support.crew import SECOND, Crew, until
from support.queue_tasks import EMAILS, NEWER, Email, Sms, encode

from matrixsched.events import BatchEnded, QueueHandlerFailed, TaskSetAside
from matrixsched.queues.results import DeadLetter, Done, HandlerStats, RetryAt
from matrixsched.queues.storage import QueueStorage
from matrixsched.worker.settling import too_new_delay

pytestmark = pytest.mark.anyio


# What a handler gets.


async def test_a_batch_is_as_large_as_it_may_be_and_typed(crew: Crew):
    seen: list[list[Email]] = []
    crew.handle("emails", lambda tasks: seen.append(tasks), batch_size=2)
    ids = await crew.emails("ada", "bob", "eve")
    assert await crew.processors().run_ready() == 3
    assert [[task.to for task in batch] for batch in seen] == [["ada", "bob"], ["eve"]]
    assert [(task.task_id, task.attempts) for batch in seen for task in batch] == [(id, 0) for id in ids]
    assert (await crew.stat()).total == 0


async def test_the_store_says_how_large_before_the_handler_and_that_before_the_worker(crew: Crew):
    @dataclass
    class Terms:
        batch_size: int | None = None
        visibility: timedelta | None = None
        processors_max: int | None = None

    sizes: list[int] = []
    crew.handle("emails", lambda tasks: sizes.append(len(tasks)), batch_size=2)
    crew.handle("sms", lambda tasks: sizes.append(len(tasks)))
    await crew.emails("ada", "bob", "eve")
    await crew.app.queues.put_many([Sms(number=number) for number in range(3)])
    processors = crew.processors(queue_batch_size=1)
    await processors.run_ready()
    assert sizes == [2, 1, 1, 1, 1]
    await crew.emails("ada", "bob", "eve")
    processors.configure({EMAILS: Terms(batch_size=3, visibility=6 * SECOND)})
    await processors.run_ready()
    assert sizes[-1] == 3


async def test_a_plain_function_runs_in_a_thread_and_settles_from_there(crew: Crew):
    threads: list[int] = []

    def send(tasks: list[Email], storage: Any) -> None:
        threads.append(threading.get_ident())
        assert storage.done(tasks[:1]).settled == {tasks[0].task_id}
        storage.retry([(tasks[1], 5 * SECOND)])
        storage.put(EMAILS, encode(Email(to="new")), delay=SECOND)
        assert storage.stat()[EMAILS].total == 3

    crew.handle("emails", send)
    await crew.emails("ada", "bob", "eve")
    await crew.processors().run_ready()
    assert threads
    assert threads != [threading.get_ident()]
    assert (crew.ended.processed, crew.ended.retried, crew.ended.left) == (1, 1, 1)


# What becomes of what it returns.


async def test_each_task_is_settled_as_the_handler_says_with_one_call_for_each_kind(crew: Crew):
    async def send(tasks: list[Email]) -> list[Any]:
        answers = {"a": Done(), "b": RetryAt(5 * SECOND), "c": DeadLetter("no such address")}
        return [answers[task.to] for task in tasks]

    crew.handle("emails", send)
    await crew.emails("a", "b", "c", "a", "b", "c")
    await crew.processors().run_ready()
    assert crew.storage.calls == ["get", "done", "retry", "set_aside"]
    stat = await crew.stat()
    assert (stat.total, stat.delayed, stat.dead) == (2, 2, 2)
    assert [letter.reason for letter in await crew.app.queues.dead_letters("emails")] == ["no such address"] * 2
    ended = crew.ended
    assert (ended.tasks, ended.processed, ended.retried, ended.dead, ended.left) == (6, 2, 2, 2, 0)
    assert [event.unreadable for event in crew.of(TaskSetAside)] == [False, False]


async def test_a_retry_comes_back_with_one_more_attempt(crew: Crew):
    seen: list[int] = []

    async def send(tasks: list[Email]) -> RetryAt:
        seen.append(tasks[0].attempts)
        return RetryAt(crew.clock.now() + 5 * SECOND)

    crew.handle("emails", send)
    await crew.emails("ada")
    processors = crew.processors()
    await processors.run_ready()
    await processors.run_ready()
    crew.clock.advance(5 * SECOND)
    await processors.run_ready()
    assert seen == [0, 1]


async def test_what_the_handler_settled_itself_is_not_settled_again(crew: Crew):
    async def send(tasks: list[Email], storage: QueueStorage) -> list[Any]:
        await storage.done(tasks[:1])
        await storage.set_aside([(tasks[1], "spam")])
        return [RetryAt(SECOND)] * 3

    crew.handle("emails", send)
    await crew.emails("ada", "bob", "eve")
    await crew.processors().run_ready()
    stat = await crew.stat()
    assert (stat.total, stat.delayed, stat.dead) == (1, 1, 1)
    assert (crew.ended.processed, crew.ended.dead, crew.ended.retried, crew.ended.stale) == (1, 1, 1, 0)


async def test_what_is_left_unsettled_waits_for_the_visibility_timeout(crew: Crew):
    attempts: list[list[int]] = []

    async def send(tasks: list[Email], storage: QueueStorage) -> HandlerStats:
        attempts.append([task.attempts for task in tasks])
        await storage.done(tasks[:1])
        return HandlerStats(processed=1, errors=2, duration=3 * SECOND, last_error="secret")

    crew.handle("emails", send, visibility=30 * SECOND)
    await crew.emails("ada", "bob", "eve")
    processors = crew.processors()
    await processors.run_ready()
    assert (crew.ended.processed, crew.ended.left, crew.ended.errors) == (1, 2, 2)
    assert (crew.ended.last_error, crew.ended.busy_s, crew.ended.cycle_s) == ("secret", 3.0, 0.0)
    crew.clock.advance(29 * SECOND)
    await processors.run_ready()
    crew.clock.advance(SECOND)
    await processors.run_ready()
    assert attempts == [[0, 0, 0], [1, 1]]


async def test_an_exception_leaves_what_is_unsettled_and_names_queue_and_kind_but_no_message(crew: Crew):
    async def send(tasks: list[Email], storage: QueueStorage) -> None:
        await storage.done(tasks[:1])
        raise PermissionError("secret")

    crew.handle("emails", send)
    await crew.emails("ada", "bob", "eve")
    await crew.processors().run_ready()
    (failed,) = crew.of(QueueHandlerFailed)
    assert (failed.queue, failed.name, failed.tasks) == (EMAILS, "emails", 3)
    assert failed.error.startswith("PermissionError in send (test_batches.py:")
    assert "secret" not in repr(crew.told)
    assert (crew.ended.processed, crew.ended.left, crew.ended.errors) == (1, 2, 2)
    assert (await crew.stat()).taken == 2


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, anyio.get_cancelled_exc_class])
async def test_whatever_a_handler_raises_the_processor_goes_on(crew: Crew, error: Any):
    async def send(tasks: list[Email]) -> None:
        raise error() if isinstance(error, type) else error()()

    crew.handle("emails", send)
    await crew.emails("ada")
    await crew.processors().run_ready()
    assert len(crew.of(QueueHandlerFailed)) == 1
    assert crew.ended.left == 1


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, StopIteration, ValueError])
async def test_whatever_a_plain_function_raises_the_worker_goes_on(crew: Crew, error: type[BaseException]):
    """Also what Python would take for the end of whoever awaits its thread."""

    def send(tasks: list[Email]) -> None:
        if tasks[0].to == "ada":
            raise error

    crew.handle("emails", send, batch_size=1)
    crew.handle("sms", lambda tasks: None)
    await crew.emails("ada")
    await crew.app.queues.put(Sms(number=1))
    async with crew.at_work():
        await until(lambda: len(crew.of(BatchEnded)) == 2)
    assert len(crew.of(QueueHandlerFailed)) == 1
    assert sum(event.left for event in crew.of(BatchEnded)) == 1


async def test_results_that_make_no_sense_settle_nothing(crew: Crew):
    crew.handle("emails", lambda tasks: [Done()])
    await crew.emails("ada", "bob")
    await crew.processors().run_ready()
    (failed,) = crew.of(QueueHandlerFailed)
    assert failed.error.startswith("the handler returned 1 results for 2 tasks")
    assert crew.storage.calls == ["get"]
    assert crew.ended.left == 2


async def test_a_handler_may_do_to_its_list_what_it_likes(crew: Crew):
    async def send(tasks: list[Email]) -> list[Done]:
        return [Done() for _ in range(len(tasks)) if tasks.pop(0)]

    crew.handle("emails", send)
    await crew.emails("ada", "bob")
    await crew.processors().run_ready()
    assert crew.ended.processed == 2


# What cannot be read.


async def test_what_cannot_be_read_is_set_aside_with_its_bytes_and_harms_nobody(crew: Crew):
    seen: list[str] = []
    crew.handle("emails", lambda tasks: seen.extend(task.to for task in tasks))
    await crew.storage.put(EMAILS, b"\xff secret")
    await crew.emails("ada")
    await crew.storage.put(EMAILS, b"broken")
    await crew.storage.put(EMAILS, NEWER)
    await crew.processors().run_ready()
    assert seen == ["ada"]
    letters = await crew.app.queues.dead_letters("emails")
    assert [letter.data for letter in letters] == [b"\xff secret", b"broken"]
    assert letters[0].reason.startswith("task 1 of queue 'emails' cannot be read: it is not a msgpack array")
    assert letters[1].reason.startswith("task 3 of queue 'emails' cannot be read")
    assert [(event.task_id, event.unreadable) for event in crew.of(TaskSetAside)] == [(1, True), (3, True)]
    assert "secret" not in repr(crew.told)
    stat = await crew.stat()
    assert (stat.total, stat.delayed, stat.dead) == (1, 1, 2)
    assert crew.storage.calls == ["get", "done", "retry", "set_aside"]


async def test_what_is_too_new_is_offered_again_after_ten_seconds(crew: Crew):
    crew.handle("emails", lambda tasks: pytest.fail("there is nothing for it"))
    await crew.storage.put(EMAILS, NEWER)
    processors = crew.processors()
    await processors.run_ready()
    crew.clock.advance(10 * SECOND)
    (again,) = await crew.storage.get(EMAILS, 10)
    assert again.attempts == 1


async def test_what_stays_too_new_is_offered_again_later_each_time_for_every_return_counts(crew: Crew):
    """An old worker beside new ones must not use up the attempts that handlers would give the task."""
    crew.handle("emails", lambda tasks: pytest.fail("there is nothing for it"))
    await crew.storage.put(EMAILS, NEWER)
    processors, delays = crew.processors(), []
    for _ in range(7):
        await processors.run_ready()
        delays.append((await crew.storage.look([EMAILS], within=timedelta(hours=1)))[EMAILS].next_due_s)
        crew.clock.advance(delays[-1] * SECOND)
    assert delays == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert too_new_delay(10**9) == timedelta(minutes=5)


async def test_what_cannot_be_read_is_set_aside_also_if_the_handler_fails(crew: Crew):
    def fail(tasks: list[Email]) -> None:
        raise ValueError

    crew.handle("emails", fail)
    await crew.storage.put(EMAILS, b"nonsense")
    await crew.emails("ada")
    await crew.processors().run_ready()
    assert (crew.ended.dead, crew.ended.left) == (1, 1)
