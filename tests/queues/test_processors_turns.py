"""Where processors go: in turns, where they are assigned to, and not where nothing is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from support.crew import SECOND, Crew, until
from support.queue_tasks import EMAILS, SMS, Email, Sms

from matrixsched.errors import OutcomeUnknown
from matrixsched.events import BatchEnded, StepFailed
from matrixsched.queues.results import Done, RetryAt
from matrixsched.rules.queues import QueueSettings

pytestmark = pytest.mark.anyio


# Where processors go.


async def test_without_an_assignment_queues_take_turns(crew: Crew):
    served: list[str] = []
    crew.handle("emails", lambda tasks: served.append("emails"), batch_size=1)
    crew.handle("sms", lambda tasks: served.append("sms"), batch_size=1)
    await crew.emails("a", "b", "c")
    await crew.app.queues.put_many([Sms(number=number) for number in range(2)])
    async with crew.at_work():
        await until(lambda: len(served) == 5)
    assert served == ["emails", "sms", "emails", "sms", "emails"]


async def test_nothing_is_taken_of_empty_queues_and_one_look_is_for_all(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    crew.handle("sms", lambda tasks: None)
    async with crew.at_work(processors=3) as processors:
        await until(lambda: crew.storage.looks == 1)
        await anyio.wait_all_tasks_blocked()
        assert crew.storage.looks == 1
        crew.clock.advance(SECOND)
        await until(lambda: crew.storage.looks == 2)
        crew.clock.advance(SECOND / 2)
        assert crew.storage.asked == []
        await crew.emails("ada")
        processors.hear()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert crew.storage.asked == [EMAILS]


async def test_news_that_are_of_others_do_not_make_them_be_looked_at_all_the_time(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    async with crew.at_work() as processors:
        await until(lambda: crew.storage.looks == 1)
        for _ in range(10):
            processors.hear()
            await anyio.wait_all_tasks_blocked()
        assert crew.storage.looks == 1
        crew.clock.advance(SECOND / 50)
        await until(lambda: crew.storage.looks == 2)
    assert crew.storage.asked == []


async def test_what_comes_while_a_batch_is_taken_is_not_forgotten(crew: Crew):
    """The look that tells of it is answered before the batch is, which does not know of it."""
    seen: list[str] = []

    async def send(tasks: list[Email]) -> None:
        seen.extend(task.to for task in tasks)

    crew.handle("emails", send)
    await crew.emails("ada")
    begun, may_answer, get = anyio.Event(), anyio.Event(), crew.storage.get

    async def answering_late(*asked: Any, **how: Any) -> Any:
        tasks = await get(*asked, **how)
        begun.set()
        await may_answer.wait()
        return tasks

    crew.storage.get = answering_late
    async with crew.at_work(processors=2) as processors:
        await begun.wait()
        await crew.emails("bob")
        crew.clock.advance(SECOND / 50)
        processors.hear()
        await until(lambda: crew.storage.looks == 2)
        may_answer.set()
        await until(lambda: seen == ["ada", "bob"])


async def test_a_look_without_an_answer_is_made_again(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    crew.storage.fails["look"] = [OutcomeUnknown("no answer")]
    await crew.emails("ada")
    async with crew.at_work() as processors:
        await until(lambda: len(crew.of(StepFailed)) == 1)
        assert processors.looked_at is None
        crew.clock.advance(SECOND)
        await until(lambda: len(crew.of(BatchEnded)) == 1)


async def test_what_is_delayed_is_taken_when_it_is_due_and_no_later(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    async with crew.at_work() as processors:
        await until(lambda: crew.storage.looks == 1)
        await crew.app.queues.put(Email(to="ada"), delay=SECOND / 4)
        crew.clock.advance(SECOND / 50)
        processors.hear()
        await until(lambda: crew.storage.looks == 2)
        crew.clock.advance(0.22 * SECOND)
        await anyio.wait_all_tasks_blocked()
        assert crew.storage.asked == []
        crew.clock.advance(SECOND / 100)
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert crew.storage.asked == [EMAILS]


async def test_what_somebody_left_is_taken_when_its_timeout_is_over(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    await crew.emails("ada")
    await crew.storage.get(EMAILS, 1, visibility=1.5 * SECOND)
    async with crew.at_work():
        for _ in range(2):
            await anyio.wait_all_tasks_blocked()
            assert crew.of(BatchEnded) == []
            crew.clock.advance(0.75 * SECOND)
        await until(lambda: len(crew.of(BatchEnded)) == 1)


async def test_a_full_batch_calls_the_others_for_help(crew: Crew):
    may_end = anyio.Event()

    async def send(tasks: list[Email]) -> None:
        await may_end.wait()

    crew.handle("emails", send, batch_size=1)
    async with crew.at_work(processors=3) as processors:
        await until(lambda: crew.storage.looks == 1)
        crew.clock.advance(SECOND / 2)
        await crew.emails("a", "b", "c", "d")
        processors.hear()
        await until(lambda: processors.running == 3)
        may_end.set()
        await until(lambda: len(crew.of(BatchEnded)) == 4)


async def test_what_is_to_be_retried_soon_is_looked_for_in_time_whatever_else_is_asked_meanwhile(crew: Crew):
    attempts: list[int] = []

    async def send(tasks: list[Email]) -> Any:
        attempts.append(tasks[0].attempts)
        return RetryAt(SECOND / 10) if not tasks[0].attempts else Done()

    crew.handle("emails", send)
    crew.handle("sms", lambda tasks: None)
    await crew.emails("ada")
    async with crew.at_work() as processors:
        await until(lambda: attempts == [0])
        await anyio.wait_all_tasks_blocked()
        crew.clock.advance(SECOND / 20)
        processors.hear()  # an answer that has nothing must not make it be forgotten
        await anyio.wait_all_tasks_blocked()
        assert attempts == [0]
        crew.clock.advance(SECOND / 20)
        await until(lambda: attempts == [0, 1])


async def test_one_of_several_that_come_back_at_different_times_does_not_make_the_others_late(crew: Crew):
    done: list[str] = []

    async def send(tasks: list[Email]) -> list[Any]:
        done.extend(task.to for task in tasks if task.attempts)
        return [Done() if task.attempts else RetryAt(int(task.to) * SECOND / 10) for task in tasks]

    crew.handle("emails", send)
    await crew.emails("1", "2", "3")
    async with crew.at_work():
        for count in (0, 1, 2, 3):
            await until(lambda count=count: len(done) == count and len(crew.of(BatchEnded)) == count + 1)
            await anyio.wait_all_tasks_blocked()
            crew.clock.advance(SECOND / 10)
    assert done == ["1", "2", "3"]


async def test_an_assignment_counts_from_the_next_batch_on(crew: Crew):
    may_end = {"emails": anyio.Event(), "sms": anyio.Event()}
    served: list[str] = []

    def serving(name: str) -> Callable[[list[Any]], Awaitable[None]]:
        async def serve(tasks: list[Any]) -> None:
            served.append(name)
            await may_end[name].wait()

        return serve

    crew.handle("emails", serving("emails"), batch_size=1)
    crew.handle("sms", serving("sms"), batch_size=1)
    await crew.emails(*"abcdef")
    await crew.app.queues.put_many([Sms(number=number) for number in range(6)])
    async with crew.at_work(processors=3) as processors:
        processors.assign({EMAILS: 2, SMS: 1, 99: 5})
        await until(lambda: processors.running == 3)
        assert sorted(served) == ["emails", "emails", "sms"]
        processors.assign({SMS: 3})
        await anyio.wait_all_tasks_blocked()
        assert len(served) == 3
        may_end["emails"].set()
        await until(lambda: served.count("sms") == 3)
        assert processors.running == 3
        assert served.count("emails") <= 4  # every other one of those on their way went there
        assert processors.assigned == {SMS: 3}
        may_end["sms"].set()
        # Nobody waits at an empty queue: when its own has nothing left, a processor goes round.
        await until(lambda: len(crew.of(BatchEnded)) == 12)


async def test_processors_beyond_the_assignment_go_round(crew: Crew):
    served: list[str] = []
    crew.handle("emails", lambda tasks: served.append("emails"), batch_size=1)
    crew.handle("sms", lambda tasks: served.append("sms"), batch_size=1)
    await crew.emails("a", "b")
    await crew.app.queues.put_many([Sms(number=number) for number in range(2)])
    async with crew.at_work(processors=2) as processors:
        processors.assign({SMS: 1})
        await until(lambda: len(served) == 4)
    assert sorted(served) == ["emails", "emails", "sms", "sms"]


async def test_where_all_are_assigned_elsewhere_the_first_task_of_another_queue_waits_for_one_batch_at_most(crew: Crew):
    served: list[str] = []

    async def send(tasks: list[Email]) -> None:
        served.append("emails")
        if len(served) == 3:
            await crew.app.queues.put(Sms(number=1))
            processors.hear()
        crew.clock.advance(SECOND / 20)

    crew.handle("emails", send, batch_size=1)
    crew.handle("sms", lambda tasks: served.append("sms"), batch_size=1)
    await crew.emails(*"abcdefgh")
    async with crew.at_work(processors=1) as processors:
        processors.assign({EMAILS: 1})
        await until(lambda: len(served) == 9)
    assert served.index("sms") == 3


async def test_what_has_no_processor_of_its_own_takes_one_in_turns_at_most(crew: Crew):
    served: list[str] = []
    may_end = anyio.Event()

    async def send(tasks: list[Email]) -> None:
        served.append("emails")
        await may_end.wait()

    async def text(tasks: list[Sms]) -> None:
        served.append("sms")
        await may_end.wait()

    crew.handle("emails", send, batch_size=1)
    crew.handle("sms", text, batch_size=1)
    await crew.emails(*"abcdefgh")
    await crew.app.queues.put_many([Sms(number=number) for number in range(8)])
    async with crew.at_work(processors=3) as processors:
        processors.assign({EMAILS: 3})
        await until(lambda: processors.running == 3)
        assert sorted(served) == ["emails", "emails", "sms"]
        may_end.set()
        await until(lambda: len(served) == 16)


async def test_a_queue_whose_processors_are_limited_is_left_to_those_assigned(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    crew.handle("sms", lambda tasks: None)
    await crew.emails("ada")
    await crew.app.queues.put(Sms(number=1))
    async with crew.at_work(processors=2) as processors:
        processors.configure({EMAILS: QueueSettings(queue=EMAILS, processors_max=1)})
        await until(lambda: len(crew.of(BatchEnded)) == 1)
        await anyio.wait_all_tasks_blocked()
        assert [event.name for event in crew.of(BatchEnded)] == ["sms"]
        processors.assign({EMAILS: 1})
        processors.hear()
        await until(lambda: len(crew.of(BatchEnded)) == 2)


async def test_who_stands_by_for_a_limited_queue_begins_at_once_and_takes_turns_with_its_own(crew: Crew):
    served: list[str] = []

    async def send(tasks: list[Email]) -> None:
        served.append("emails")
        if len(served) == 2:
            await crew.app.queues.put_many([Sms(number=1), Sms(number=2)])
            processors.hear()
        crew.clock.advance(SECOND / 20)

    crew.handle("emails", send, batch_size=1)
    crew.handle("sms", lambda tasks: served.append("sms"), batch_size=1)
    await crew.emails(*"abcde")
    async with crew.at_work(processors=1) as processors:
        processors.configure({SMS: QueueSettings(queue=SMS, processors_max=1)})
        processors.assign({EMAILS: 1, SMS: 1})
        await until(lambda: len(served) == 7)
    assert served == ["emails", "emails", "sms", "emails", "sms", "emails", "emails"]


async def test_settings_that_were_changed_are_read_before_anything_else_is_taken(crew: Crew):
    crew.handle("emails", lambda tasks: None, batch_size=1)
    await crew.emails("a", "b", "c")
    changed_at, look = crew.clock.now(), crew.storage.look
    read: list[str] = []

    async def looking(queues: Any, **how: Any) -> Any:
        return {queue: replace(one, settings_at=changed_at) for queue, one in (await look(queues, **how)).items()}

    async def read_settings() -> None:
        read.append("tried")
        if len(read) == 1:
            raise OutcomeUnknown("no answer")
        processors.configure({EMAILS: QueueSettings(queue=EMAILS, batch_size=3)})

    crew.storage.look = looking
    processors = crew.processors()
    processors.on_settings_change = read_settings
    with pytest.raises(OutcomeUnknown):
        await processors.step(0)
    assert crew.storage.asked == []
    await processors.step(0)
    assert (crew.ended.tasks, len(read)) == (3, 2)
    crew.clock.advance(SECOND)
    await crew.emails("d")
    await processors.step(0)
    assert (crew.ended.tasks, len(read)) == (1, 2)


async def test_a_worker_that_is_to_wait_for_a_manager_does_nothing_before_it_is_told(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    await crew.emails("ada")
    async with crew.at_work(queues_idle_until_told=True) as processors:
        for _ in range(3):
            processors.hear()
            await anyio.wait_all_tasks_blocked()
            crew.clock.advance(SECOND)
        assert crew.storage.asked == []
        assert processors.looked_at is not None
        processors.assign({})
        assert crew.storage.asked == []
        processors.assign({EMAILS: 1})
        await until(lambda: len(crew.of(BatchEnded)) == 1)


async def test_a_paused_queue_is_left_alone_and_others_are_served(crew: Crew):
    served: list[str] = []
    crew.handle("emails", lambda tasks: served.append("emails"))
    crew.handle("sms", lambda tasks: served.append("sms"))
    await crew.emails("a")
    await crew.app.queues.put(Sms(number=1))
    await crew.app.queues.pause("emails")
    async with crew.at_work() as processors:
        await until(lambda: served == ["sms"])
        crew.clock.advance(SECOND / 2)
        await crew.app.queues.resume("emails")
        processors.hear()
        await until(lambda: served == ["sms", "emails"])


async def test_a_handler_that_keeps_failing_does_not_go_through_its_whole_queue_at_once(crew: Crew):
    def fail(tasks: list[Email]) -> None:
        raise ValueError

    crew.handle("emails", fail, batch_size=1)
    await crew.emails(*"abcdefghij")
    async with crew.at_work(processors=2) as processors:
        await until(lambda: len(crew.of(BatchEnded)) >= 1)
        await anyio.wait_all_tasks_blocked()
        processors.hear()
        await anyio.wait_all_tasks_blocked()
        assert len(crew.of(BatchEnded)) <= 2
        crew.clock.advance(SECOND)
        await until(lambda: len(crew.of(BatchEnded)) >= 3)
        assert (await crew.stat()).ready >= 6
