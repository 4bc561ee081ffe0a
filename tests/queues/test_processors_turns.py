"""Where processors go: in turns, where they are assigned to, and not where nothing is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from support.crew import SECOND, Crew, until
from support.queue_tasks import EMAILS, SMS, Email, Sms

from matrixsched.events import BatchEnded
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


async def test_an_empty_queue_is_not_asked_again_at_once_but_when_there_are_news(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    async with crew.at_work(processors=3) as processors:
        await until(lambda: crew.storage.asked == [EMAILS])
        await anyio.wait_all_tasks_blocked()
        assert crew.storage.asked == [EMAILS]
        crew.clock.advance(SECOND)
        await until(lambda: len(crew.storage.asked) == 2)
        crew.clock.advance(SECOND / 2)
        await crew.emails("ada")
        processors.hear()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert len(crew.storage.asked) == 3


async def test_news_that_are_of_others_do_not_make_it_be_asked_all_the_time(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    async with crew.at_work() as processors:
        await until(lambda: len(crew.storage.asked) == 1)
        for _ in range(10):
            processors.hear()
            await anyio.wait_all_tasks_blocked()
        assert len(crew.storage.asked) == 1
        crew.clock.advance(SECOND / 50)
        await until(lambda: len(crew.storage.asked) == 2)


async def test_a_full_batch_calls_the_others_for_help(crew: Crew):
    may_end = anyio.Event()

    async def send(tasks: list[Email]) -> None:
        await may_end.wait()

    crew.handle("emails", send, batch_size=1)
    async with crew.at_work(processors=3) as processors:
        await until(lambda: len(crew.storage.asked) == 1)
        crew.clock.advance(SECOND / 2)
        await crew.emails("a", "b", "c", "d")
        processors.hear()
        await until(lambda: processors.running == 3)
        may_end.set()
        await until(lambda: len(crew.of(BatchEnded)) == 4)


async def test_what_is_to_be_retried_soon_is_looked_for_in_time(crew: Crew):
    attempts: list[int] = []

    async def send(tasks: list[Email]) -> Any:
        attempts.append(tasks[0].attempts)
        return RetryAt(SECOND / 10) if not tasks[0].attempts else Done()

    crew.handle("emails", send)
    await crew.emails("ada")
    async with crew.at_work():
        await until(lambda: attempts == [0])
        await anyio.wait_all_tasks_blocked()
        crew.clock.advance(SECOND / 10)
        await until(lambda: attempts == [0, 1])


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
        await until(lambda: len(served) == 5)
        assert served[3:] == ["sms", "sms"]
        assert processors.assigned == {SMS: 3}
        may_end["sms"].set()
        await until(lambda: len(crew.of(BatchEnded)) == 12)
        # Nobody waits at an empty queue: when its own has nothing left, a processor goes round.
        assert served[3:] == ["sms"] * 5 + ["emails"] * 4


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


async def test_where_all_are_assigned_elsewhere_somebody_looks_all_the_same_now_and_then(crew: Crew):
    served: list[str] = []

    def serving(name: str) -> Callable[[list[Any]], None]:
        def serve(tasks: list[Any]) -> None:
            served.append(name)
            crew.clock.advance(SECOND / 2)

        return serve

    crew.handle("emails", serving("emails"), batch_size=1)
    crew.handle("sms", serving("sms"), batch_size=1)
    await crew.emails(*"abcdefgh")
    await crew.app.queues.put_many([Sms(number=1), Sms(number=2)])
    async with crew.at_work(processors=1) as processors:
        processors.assign({EMAILS: 1})
        await until(lambda: len(served) == 10)
    assert served.index("sms") <= 4


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
