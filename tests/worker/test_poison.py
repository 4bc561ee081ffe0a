"""Handlers and payloads that would kill a careless worker: each fails alone, its neighbour runs, on both databases."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, field_validator

from matrixsched import App, Cancel, Retry, RetryAt, State
from matrixsched.clock import SeededChance
from matrixsched.errors import BadInput, InvalidPayload
from matrixsched.events import AttemptEnded
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
ONCE = Retry(max_attempts=1)


class Unwritable:
    """No model, and nothing that pydantic knows."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even this")


async def unspeakable() -> object:
    raise Unspeakable


async def cancel_with_an_error() -> object:
    return Cancel(ValueError("pointless"))  # type: ignore[arg-type]


async def retry_with_an_error() -> object:
    return RetryAt(SECOND, reason=ValueError("later"))  # type: ignore[arg-type]


async def open_scope() -> object:
    anyio.CancelScope().__enter__()
    anyio.move_on_after(0.01).__enter__()
    return None


async def cancelled_open_scope() -> object:
    anyio.CancelScope().__enter__().cancel()
    await anyio.sleep(1)
    return None


async def forged() -> object:
    outcome = Cancel()
    object.__setattr__(outcome, "reason", 5)
    return outcome


async def open_group() -> object:
    await anyio.create_task_group().__aenter__()
    return None


POISON: dict[Callable[[], Any], str] = {
    unspeakable: "Unspeakable: (its message cannot be shown: SystemExit) [in unspeakable (test_poison.py:",
    cancel_with_an_error: "BadInput: Cancel.reason must be a string, not ValueError",
    retry_with_an_error: "BadInput: RetryAt.reason must be a string, not ValueError",
    open_scope: "the handler left a cancel scope or a task group open",
    cancelled_open_scope: "the handler left a cancel scope or a task group open",
    open_group: "the handler left a cancel scope or a task group open",
    forged: "AttributeError: ",
}


@pytest.mark.parametrize("poison", POISON, ids=lambda poison: poison.__name__)
async def test_a_poisonous_handler_fails_alone(app, clock, poison):
    ran: list[int] = []
    handler = app.action("poison", retry=ONCE)(poison)

    @app.action("work")
    async def work(number: int) -> None:
        await anyio.sleep(0.03)
        ran.append(number)

    await app.schedule(handler, id="p")
    for number in range(3):
        clock.advance(SECOND)
        await app.schedule(work, number, id=f"w{number}")
    assert await Worker(app).run_due() == 4
    status = (await app.get("p")).status
    assert (status.state, status.failed) == (State.FAILED, 1)
    assert status.last_error is not None
    assert status.last_error.startswith(POISON[poison])
    assert sorted(ran) == [0, 1, 2]
    for number in range(3):
        assert (await app.get(f"w{number}")).status.state is State.DONE


@pytest.mark.parametrize("poison", [unspeakable, open_scope, cancelled_open_scope], ids=lambda poison: poison.__name__)
async def test_a_daemon_survives_a_poisonous_handler(database_url, poison):
    app = App(database_url)
    await app.init(shards=4)
    handler = app.action("poison", retry=ONCE)(poison)
    ran = anyio.Event()

    @app.action("work")
    async def work() -> None:
        ran.set()

    async with app, anyio.create_task_group() as group:
        worker = Worker(app)
        ended = anyio.Event()
        app.events.subscribe(AttemptEnded, lambda event: ended.set())
        group.start_soon(worker.run)
        await app.schedule(handler, id="p")
        with anyio.fail_after(20):
            await ended.wait()
            await app.schedule(work, id="w")
            await ran.wait()
        worker.stop()
        # The slot's task is left in no scope that the handler opened: it takes part in the stop like any other.
    assert worker.runner.running == 0


class Moody(BaseModel):
    key: str

    @field_validator("key")
    @classmethod
    def look_up(cls, key: str) -> str:
        if key == "unspeakable":
            raise type("Dumb", (ValueError,), {"__str__": lambda self: {}["x"]})
        return {"good": "good"}[key]


@pytest.mark.parametrize("key", ["bad", "unspeakable"])
async def test_a_model_that_raises_when_read_is_quarantined_alone(app, clock, database_url, key):
    ran: list[str] = []

    @app.action("moody")
    async def moody(payload: Moody) -> None:
        ran.append(payload.key)

    async with App(database_url, clock=clock, chance=SeededChance(2)) as producer:
        await producer.schedule("moody", {"key": key}, id="b")
    clock.advance(SECOND)
    await app.schedule(moody, Moody(key="good"), id="g")
    assert await Worker(app).run_due() == 2
    status = (await app.get("b")).status
    assert status.state is State.QUARANTINED
    assert status.last_error is not None
    assert "its model raised" in status.last_error
    assert ran == ["good"]


async def test_a_model_that_raises_when_written_is_refused_as_an_invalid_payload(app):
    class Mute(BaseModel):
        @field_validator("*", mode="before")
        @classmethod
        def never(cls, value: object) -> object:
            raise KeyError("secret")

        key: str = ""

    @app.action("mute")
    async def mute(payload: Mute) -> None: ...

    with pytest.raises(InvalidPayload, match="its model raised KeyError") as refused:
        await app.schedule(mute, {"key": "secret"}, id="m")
    assert "secret" not in str(refused.value)


async def test_a_handler_that_returns_an_awaitable_is_awaited_not_taken_for_done(app):
    ran: list[str] = []

    async def work(name: str) -> object:
        ran.append(name)
        return Cancel("really run")

    class Service:
        async def __call__(self, payload: str) -> object:
            return await work(payload)

    class Plain:
        def __call__(self, payload: str) -> object:
            return work(payload)

    async def again(payload: str) -> object:
        return work(payload)

    handlers = {
        "lambda": lambda payload: work(payload),
        "async callable": Service(),
        "plain callable": Plain(),
        "partial": partial(work),
        "async round async": again,
    }
    for name, function in handlers.items():
        await app.schedule(app.action(name)(function), name, id=name)
    assert await Worker(app).run_due() == len(handlers)
    assert sorted(ran) == sorted(handlers)
    for name in handlers:
        assert (await app.get(name)).status.state is State.CANCELLED, name


async def test_a_returned_retry_policy_is_a_slip_and_fails_the_attempt(app):
    @app.action("slip", retry=ONCE)
    async def slip() -> Retry:
        return Retry()

    await app.schedule(slip, id="s")
    assert await Worker(app).run_due() == 1
    status = (await app.get("s")).status
    assert status.state is State.FAILED
    assert status.last_error == "the handler returned a Retry, which is a policy: to be run again, return RetryAt(when)"


async def nowhere(payload: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def schemaless(payload: Unwritable) -> None: ...


async def keyword_only(*, payload: int) -> None: ...


async def keywords(**payload: int) -> None: ...


async def generator(payload: int):
    yield


def plain_generator(payload: int):
    yield


MISTAKES: dict[Callable[..., Any], str] = {
    nowhere: "handler 'x': an annotation cannot be read (NameError: name 'Nowhere' is not defined)",
    schemaless: "handler 'x': pydantic cannot read and write its payload's type Unwritable",
    keyword_only: "handler 'x' is called with positional arguments, but 'payload' is taken by keyword only",
    keywords: "handler 'x' is called with positional arguments, but 'payload' is taken by keyword only",
    generator: "handler 'x' is a generator",
    plain_generator: "handler 'x' is a generator",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistaken_handler_is_refused_at_registration_in_words(mistake):
    with pytest.raises(BadInput) as refused:
        App("sqlite://").action("x")(mistake)
    assert str(refused.value).startswith(MISTAKES[mistake])


def test_a_handler_registered_without_a_name_is_told_how():
    with pytest.raises(BadInput, match=r'@app\.action\("name"\)'):
        App("sqlite://").action(unspeakable)(unspeakable)  # type: ignore[arg-type]


async def test_a_retry_that_is_none_is_refused_at_registration(app):
    with pytest.raises(BadInput, match=r"retry of handler 'x' must be a Retry, .* not int"):

        @app.action("x", retry=3)
        async def x() -> None: ...
