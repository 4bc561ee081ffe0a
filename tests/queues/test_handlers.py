"""Queues and their handlers as an application knows them, and what handlers may say of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from support.queue_tasks import CONTRACT, Email, Sms, contract_of, encode

from matrixsched import App
from matrixsched.errors import BadInput, InvalidDuration, InvalidNumber, QueueContradiction, UnknownQueue
from matrixsched.queues import Contract, QueueContract
from matrixsched.queues.memory import MemoryStorage
from matrixsched.queues.results import DeadLetter, Done, HandlerStats, RetryAt, results_of, retry_or_bury
from matrixsched.queues.tasks import QueueTask
from matrixsched.rules.queues import Receipt, StoredTask

SECOND = timedelta(seconds=1)
AT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def app() -> App:
    app = App("sqlite:///never-opened.db", queue_storage=MemoryStorage())
    app.queues.use(CONTRACT)
    return app


def of(*queues: QueueContract) -> Contract:
    return Contract(version=1, description="", queues=queues)


# Which queues there are.


def test_the_same_contract_may_be_used_again(app: App):
    app.queues.use(CONTRACT)
    app.queues.use(of(CONTRACT.queue("emails")))
    assert app.queues.handlers.names == ["emails", "sms"]


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (contract_of(9, "emails", "to"), "its number is 1 there and 9 here"),
        (contract_of(1, "letters", "to"), "its number 1 is that of 'emails'"),
        (contract_of(1, "emails", "to", "subject"), "its tasks have other fields"),
    ],
)
def test_a_contract_that_contradicts_another_is_refused_as_a_whole(app: App, shape: QueueContract, why: str):
    with pytest.raises(QueueContradiction, match=why):
        app.queues.use(of(contract_of(3, "new", "text"), shape))
    assert app.queues.handlers.names == ["emails", "sms"]


def test_a_contract_that_is_described_in_other_words_is_the_same(app: App):
    described = replace(CONTRACT.queue("emails"), description="Mail to one customer")
    app.queues.use(of(described))
    assert app.queues.handlers.queue("emails").is_like(described)


def test_only_contracts_are_used(app: App):
    with pytest.raises(BadInput, match=r"use\(\) takes a Contract, as load_contract\(path\) returns it, not str"):
        app.queues.use("queues.yaml")  # type: ignore[arg-type]


# Who handles them.


def test_a_queue_that_is_not_declared_has_no_handler_and_those_that_are_are_named(app: App):
    with pytest.raises(UnknownQueue, match="'letters'; it has: emails, sms"):
        app.queues.handler("letters")(lambda tasks: None)


def test_functions_of_every_kind_are_handlers(app: App):
    class Sender:
        async def handle_emails(self, tasks: Sequence[Email], storage: object) -> None: ...

        def handle_sms(self, tasks: Sequence[Sms]) -> None: ...

    app.queues.handler("emails")(Sender().handle_emails)
    app.queues.handler("sms", batch_size=5, visibility=3 * SECOND)(Sender().handle_sms)
    emails, sms = app.queues.handlers
    assert (emails.queue.name, emails.is_async, emails.takes_storage) == ("emails", True, True)
    assert (sms.queue.name, sms.is_async, sms.takes_storage) == ("sms", False, False)
    assert (sms.batch_size, sms.visibility) == (5, 3 * SECOND)


def test_the_decorated_function_stays_what_it_is(app: App):
    @app.queues.handler("emails")
    async def send(tasks: list[Email]) -> None: ...

    def with_default(tasks: object, times: int = 3) -> None: ...

    def by_partial(prefix: str, tasks: object, storage: object = None) -> None: ...

    assert send.__name__ == "send"
    assert not app.queues.handlers.register("sms", with_default, batch_size=None, visibility=None).takes_storage
    other = App("sqlite:///never-opened.db", queue_storage=MemoryStorage())
    other.queues.use(CONTRACT)
    assert other.queues.handlers.register("sms", partial(by_partial, "x"), batch_size=1, visibility=None).takes_storage


def test_a_handler_by_class_gets_tasks_of_that_class(app: App):
    class Mine(Email):
        __slots__ = ()

    app.queues.handler(Mine)(lambda tasks: None)
    (handler,) = app.queues.handlers
    stored = StoredTask(
        id=1,
        queue=1,
        data=encode(Email(to="ada")),
        attempts=0,
        created_at=AT,
        start_at=AT,
        previous_start_at=None,
        receipt=Receipt(1, UUID(int=1)),
    )
    assert type(handler.decode(stored)) is Mine


async def generator(tasks: object) -> Any:
    yield tasks


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("send", "must be a function, not str"),
        (lambda: None, r"must take \(tasks\) or \(tasks, storage\)"),
        (lambda a, b, c: None, r"must take \(tasks\) or \(tasks, storage\)"),
        (lambda a, *, key: None, r"must take \(tasks\) or \(tasks, storage\)"),
        (generator, "is a generator"),
    ],
)
def test_what_cannot_be_called_with_tasks_is_refused(app: App, function: Any, why: str):
    with pytest.raises(BadInput, match=why):
        app.queues.handler("emails")(function)
    assert len(app.queues.handlers) == 0


def test_a_queue_has_one_handler(app: App):
    app.queues.handler("emails")(lambda tasks: None)
    with pytest.raises(BadInput, match="'emails' has a handler already"):
        app.queues.handler("emails")(lambda tasks: None)


@pytest.mark.parametrize(
    ("terms", "error", "why"),
    [
        ({"batch_size": 0}, InvalidNumber, "batch_size is 0, but must be between 1 and 10000"),
        ({"batch_size": 10_001}, InvalidNumber, "batch_size is 10001"),
        ({"visibility": SECOND / 2}, InvalidDuration, "visibility is 500ms, but must be between 1s and 12h"),
        ({"visibility": timedelta(0)}, InvalidDuration, "visibility is 0s, but must be between 1s and 12h"),
        ({"visibility": 60}, InvalidDuration, "visibility must be a timedelta, not int"),
    ],
)
def test_absurd_terms_are_refused(app: App, terms: dict[str, Any], error: type[BadInput], why: str):
    with pytest.raises(error, match=why):
        app.queues.handler("emails", **terms)(lambda tasks: None)
    assert len(app.queues.handlers) == 0


def test_a_handler_without_parentheses_is_told_how(app: App):
    with pytest.raises(BadInput, match="with parentheses"):
        app.queues.handler(lambda tasks: None)  # type: ignore[arg-type]


# What they say of a batch.


def test_nothing_means_done_unless_the_handler_had_the_storage_to_say_so():
    assert results_of(None, 2, takes_storage=False) == [Done(), Done()]
    assert results_of(None, 2, takes_storage=True) == [None, None]
    assert results_of(HandlerStats(processed=2), 2, takes_storage=False) == [None, None]
    assert results_of(RetryAt(SECOND), 2, takes_storage=True) == [RetryAt(SECOND)] * 2
    assert results_of((Done(), DeadLetter("no such address")), 2, takes_storage=True)[1] == DeadLetter(
        "no such address"
    )


@pytest.mark.parametrize(
    ("stats", "error", "why"),
    [
        ({"processed": -1}, InvalidNumber, "HandlerStats.processed"),
        ({"errors": "2"}, InvalidNumber, "HandlerStats.errors"),
        ({"retried": True}, InvalidNumber, "HandlerStats.retried"),
        ({"duration": 1.5}, InvalidDuration, "HandlerStats.duration"),
        ({"duration": -SECOND}, InvalidDuration, "HandlerStats.duration"),
        ({"last_error": ValueError("secret")}, BadInput, "HandlerStats.last_error must be a string, not ValueError"),
    ],
)
def test_figures_that_make_no_sense_are_refused(stats: dict[str, Any], error: type[Exception], why: str):
    with pytest.raises(error, match=why) as caught:
        HandlerStats(**stats)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        ("secret", "type str"),
        (True, "type bool"),
        ([Done()], "1 results for 2 tasks"),
        ([Done(), None], "a list with None in it"),
        ([Done(), "secret"], "a list with an object of type str in it"),
        ({Done(): 1}, "type dict"),
    ],
)
def test_what_makes_no_sense_is_refused_without_repeating_it(returned: object, why: str):
    with pytest.raises(BadInput, match=why) as caught:
        results_of(returned, 2, takes_storage=False)
    assert "secret" not in str(caught.value)


def test_a_dead_letter_has_a_reason_in_words():
    with pytest.raises(BadInput, match=r"DeadLetter\.reason must be a string"):
        DeadLetter(ValueError("secret"))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="is empty"):
        DeadLetter(" ")


def taken(attempts: int) -> QueueTask:
    receipt = Receipt(1, UUID(int=1))
    stored = StoredTask(
        id=1,
        queue=1,
        data=b"",
        attempts=0,
        created_at=AT,
        start_at=AT,
        previous_start_at=None,
        receipt=receipt,
    )
    return Email(to="ada", stored=replace(stored, attempts=attempts))


def test_an_error_of_one_task_is_retried_ever_later_and_in_the_end_not_at_all():
    error = ValueError("secret")
    answers = [retry_or_bury(taken(attempts), error) for attempts in range(10)]
    assert [answer.when / SECOND for answer in answers[:-1] if isinstance(answer, RetryAt)] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
    ]
    assert answers[-1] == DeadLetter("ValueError at attempt 10, the last of 10")
    assert "secret" not in repr(answers)


def test_how_often_and_how_late_can_be_said():
    error = ValueError()
    assert retry_or_bury(taken(20), error, max_attempts=100, max_delay=60 * SECOND) == RetryAt(
        60 * SECOND, "ValueError"
    )
    assert retry_or_bury(taken(0), error, first_delay=5 * SECOND) == RetryAt(5 * SECOND, "ValueError")
    assert isinstance(retry_or_bury(taken(0), error, max_attempts=1), DeadLetter)
    with pytest.raises(InvalidNumber):
        retry_or_bury(taken(0), error, max_attempts=0)
