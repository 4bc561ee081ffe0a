"""Batch handlers on a stage: put, travel, look at what was handled, what is left and what is dead."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import anyio
import pytest
from support.queue_tasks import CONTRACT, EMAILS, Email, Sms, encode

from matrixsched import App
from matrixsched.errors import BadInput, NeverIdle, UnknownQueue
from matrixsched.queues import put_into
from matrixsched.queues.memory import MemoryStorage
from matrixsched.queues.results import DeadLetter, Done, HandlerStats, RetryAt
from matrixsched.testing import Stage, stage

pytestmark = pytest.mark.anyio

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


class Post:
    """A program with a queue, and what its handler says of each task."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.answer: Callable[[Any], Any] = lambda task: Done()
        self.sent: list[list[str]] = []
        app.queues.use(CONTRACT)

        @app.queues.handler("emails", batch_size=2, visibility=30 * SECOND)
        async def send(tasks: list[Any]) -> list[Any]:
            self.sent.append([task.to for task in tasks])
            return [self.answer(task) for task in tasks]


@pytest.fixture
def post() -> Post:
    """Its database is real, and nowhere."""
    return Post(App("postgresql://user:secret@nowhere.invalid/production"))


@pytest.fixture
def on(post: Post, place: str | None) -> Iterator[Stage]:
    with stage(post.app, url=place) as staged:
        yield staged


async def test_what_is_put_is_handled_in_batches_at_the_instant_it_can_be_taken(post: Post, on: Stage):
    start = on.now
    await post.app.queues.put_many([Email(to="ada"), Email(to="bob"), Email(to="eve")])
    await post.app.queues.put(Email(to="joe"), delay=DAY)
    on.queues.assert_put("emails", task=Email(to="joe"), at=start + DAY)
    assert [one.state for one in on.queues.tasks()] == ["ready"] * 3 + ["delayed"]
    assert await on.advance(2 * DAY) == []
    assert post.sent == [["ada", "bob"], ["eve"], ["joe"]]
    assert [(one.task.to, one.batch, one.at - start) for one in on.queues.handled] == [  # type: ignore[attr-defined]
        ("ada", 1, timedelta(0)),
        ("bob", 1, timedelta(0)),
        ("eve", 2, timedelta(0)),
        ("joe", 3, DAY),
    ]
    assert len(on.queues.assert_handled("emails", fate="done", times=4)) == 4
    on.queues.assert_not_put()
    assert on.now == start + 2 * DAY


async def test_retries_travel_and_dead_letters_are_shown_with_their_tasks(post: Post, on: Stage):
    post.answer = lambda task: DeadLetter("no such address") if task.attempts == 2 else RetryAt(60 * SECOND)
    await post.app.queues.put(Email(to="ada"))
    await on.run_due()
    (left,) = on.queues.tasks("emails")
    assert (left.attempts, left.at - on.now, left.state) == (1, 60 * SECOND, "delayed")
    await on.run_until_idle()
    assert [one.fate for one in on.queues.handled] == ["retried", "retried", "dead"]
    letter = on.queues.assert_dead_letter("emails", task=Email(to="ada"), reason="address")
    assert (letter.reason, letter.attempts, letter.at) == ("no such address", 2, on.now)
    assert on.queues.tasks() == []


async def test_a_batch_that_fails_comes_back_when_its_visibility_timeout_is_over(post: Post, on: Stage):
    def fail_once(task: Any) -> Done:
        if not task.attempts:
            raise ConnectionError("the mail server is away")
        return Done()

    post.answer, start = fail_once, on.now
    await post.app.queues.put(Email(to="ada"))
    await on.run_due()
    (first,) = on.queues.handled
    assert (first.fate, str(first.exception)) == ("left", "the mail server is away")
    assert first.error is not None
    assert first.error.startswith("ConnectionError in fail_once")
    (left,) = on.queues.tasks(Email)
    assert (left.state, left.at - start) == ("taken", 30 * SECOND)
    await on.run_until_idle()
    assert [(one.fate, one.attempts, one.at - start) for one in on.queues.handled[1:]] == [("done", 1, 30 * SECOND)]


async def test_an_action_that_becomes_a_task_is_handled_on_the_same_journey(post: Post, on: Stage):
    await post.app.schedule(put_into("emails"), Email(to="ada"), id="a", delay=DAY)
    (ran,) = await on.advance(DAY)
    assert ran.outcome == "succeeded"
    on.queues.assert_handled(task=Email(to="ada"), times=1)


async def test_what_cannot_be_read_is_shown_as_bytes(post: Post, on: Stage):
    await post.app.queues.storage.put(EMAILS, b"nonsense")
    assert on.queues.tasks("emails")[0].task == b"nonsense"
    await on.run_due()
    assert on.queues.assert_handled("emails", fate="dead")[0].task == b"nonsense"
    assert on.queues.assert_dead_letter("emails", reason="cannot be read").task == b"nonsense"


async def test_settling_survives_lost_answers_and_a_database_that_is_away(post: Post, on: Stage):
    on.faults.lose_answer("done_tasks", times=2)
    await post.app.queues.put(Email(to="ada"))
    await on.run_due()
    on.queues.assert_handled("emails", fate="done", times=1)
    on.faults.fail("take_tasks")
    await post.app.queues.put(Email(to="bob"))
    await on.run_due()
    on.queues.assert_handled("emails", task=Email(to="bob"), times=1)
    await post.app.queues.put(Email(to="eve"))
    on.faults.database_away(60 * SECOND)
    await on.run_due()
    assert len(post.sent) == 2
    await on.advance(60 * SECOND)
    assert post.sent[2:] == [["eve"]]
    assert on.faults.pending == []


# Synchronous code and tests.


def test_a_synchronous_test_of_a_plain_handler(place: str | None):
    app = App("postgresql://user:secret@nowhere.invalid/production")
    app.queues.use(CONTRACT)

    @app.queues.handler("sms")
    def send(tasks: list[Any], storage: Any) -> HandlerStats:
        storage.done(tasks[:1])
        storage.put(EMAILS, encode(Email(to="copy")))
        return HandlerStats(processed=1)

    with stage(app, url=place) as on:
        app.sync.queues.put_many([Sms(number=1), Sms(number=2)])
        on.sync.run_due()
        on.queues.assert_handled("sms", task=Sms(number=1), fate="done", times=1)
        on.queues.assert_handled("sms", task=Sms(number=2), fate="left", times=1)
        on.queues.assert_put(Email, task=Email(to="copy"))


@pytest.mark.timeout(30)
async def test_a_handler_that_takes_really_long_is_cut_short_by_its_limit(post: Post, on: Stage):
    @post.app.queues.handler("sms", timeout=SECOND)
    async def send(tasks: list[Any]) -> None:
        await anyio.sleep_forever()

    await post.app.queues.put(Sms(number=1))
    await on.run_due()
    (cut,) = on.queues.assert_handled("sms", fate="left")
    assert cut.error is not None
    assert cut.error.startswith("it was cancelled after its timeout of 1 s")


# Inline.


@pytest.fixture
def inline(post: Post, place: str | None) -> Iterator[Stage]:
    with stage(post.app, url=place, inline=True) as staged:
        yield staged


async def test_inline_what_is_put_is_handled_before_the_call_returns(post: Post, inline: Stage):
    await post.app.queues.put(Email(to="ada"))
    assert post.sent == [["ada"]]
    post.app.sync.queues.put(Email(to="bob"))
    await post.app.queues.put(Email(to="eve"), delay=SECOND)
    assert post.sent == [["ada"], ["bob"]]

    def fail(task: Any) -> None:
        raise ConnectionError("the mail server is away")

    post.answer = fail
    with pytest.raises(ConnectionError, match="away"):
        await post.app.queues.put(Email(to="joe"))


def test_inline_what_is_in_a_transaction_of_the_caller_waits(post: Post, tmp_path: Any):
    url = f"sqlite:///{tmp_path}/stage.db"
    with stage(post.app, url=url, inline=True) as on, closing(sqlite3.connect(tmp_path / "stage.db")) as connection:
        post.app.sync.queues.put(Email(to="ada"), connection=connection)
        assert post.sent == []
        connection.commit()
        on.sync.run_due()
        assert post.sent == [["ada"]]


# What is refused, and what failing asserts say.


async def test_queues_that_are_elsewhere_are_on_the_stage_too_and_back_afterwards(place: str | None):
    elsewhere = MemoryStorage()
    post = Post(App("postgresql://user:secret@nowhere.invalid/production", queue_storage=elsewhere))
    with stage(post.app, url=place) as on:
        await post.app.queues.put(Email(to="ada"), delay=DAY)
        await on.advance(DAY)
        assert post.sent == [["ada"]]
    assert await elsewhere.stat() == {}
    await post.app.queues.put(Email(to="bob"))
    assert (await elsewhere.stat())[EMAILS].ready == 1


async def test_a_journey_whose_tasks_come_back_for_ever_ends_with_the_name_of_their_queue(post: Post):
    post.answer = lambda task: RetryAt(timedelta(0))
    with stage(post.app, attempts_max=10) as on:
        await post.app.queues.put(Email(to="ada"))
        with pytest.raises(NeverIdle, match="11 attempts were made in one go, 11 of them at queue 'emails'"):
            await on.run_due()


async def test_failing_asserts_say_what_is_there_instead(post: Post):
    with stage(post.app) as on:
        await post.app.queues.put(Email(to="ada"), delay=DAY)
        with pytest.raises(AssertionError, match="no task is there with queue 'emails', task .*bob.*\n.*\n.*ada"):
            on.queues.assert_put("emails", task=Email(to="bob"))
        with pytest.raises(AssertionError, match="there are tasks with anything at all:\n.*ada"):
            on.queues.assert_not_put()
        with pytest.raises(AssertionError, match="no dead letter is there with reason 'spam'\nthere is none at all"):
            on.queues.assert_dead_letter(reason="spam")
        await on.advance(DAY)
        with pytest.raises(AssertionError, match="0 tasks were handled with .*dead.*, 2 were.*\n.*ada.*: done"):
            on.queues.assert_handled(fate="dead", times=2)
        on.queues.assert_not_put("sms")


async def test_what_a_test_misspells_is_refused(post: Post):
    with stage(post.app) as on:
        with pytest.raises(UnknownQueue):
            on.queues.assert_not_put("emials")
        with pytest.raises(BadInput, match="fate is 'gone', but must be one of done, retried, dead, left, stale"):
            on.queues.assert_handled(fate="gone")
        await post.app.queues.put(Email(to="ada"))
        with pytest.raises(BadInput, match="task must be one of a class made from a contract, not str"):
            on.queues.assert_put(task="ada")
