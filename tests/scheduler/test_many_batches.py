"""Scheduling more calls than go into one batch: the next one is made ready while one is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest

from matrixsched import App, call
from matrixsched.calls import Call
from matrixsched.errors import BadInput, InvalidId
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper

pytestmark = pytest.mark.anyio

BATCH = 1_000
HERE = ContextVar("here", default="outside")


async def written(app: App) -> int:
    found = await app.list(limit=10_000)
    return len(found)


async def test_the_callers_generator_goes_on_in_the_callers_task(app: App) -> None:
    def calls() -> Iterator[Call]:
        token = HERE.set("inside")
        for number in range(2 * BATCH + 1):
            yield call("work", number)
        HERE.reset(token)  # refused in another task

    assert (await app.schedule_many(calls())).created == 2 * BATCH + 1
    assert HERE.get() == "outside"


async def test_an_error_of_the_generator_comes_after_what_it_gave_before_is_written(app: App) -> None:
    def calls() -> Iterator[Call]:
        for number in range(BATCH + 10):
            yield call("work", number)
        raise LookupError("no more")

    told = list[int]()
    with pytest.raises(LookupError, match="no more"):
        await app.schedule_many(calls(), progress=told.append)
    assert (await written(app), told) == (BATCH, [BATCH])


@pytest.mark.parametrize(
    ("wrong", "error"), [("no call", BadInput), (call("work", id=""), InvalidId), (call("work", at=1), BadInput)]
)
async def test_of_a_batch_with_a_call_that_is_refused_nothing_is_written(app: App, wrong: Call, error) -> None:
    calls = [call("work", number) for number in range(BATCH + 10)]
    with pytest.raises(error):
        await app.schedule_many([*calls, wrong])
    assert await written(app) == BATCH


async def test_one_call_is_not_many(app: App) -> None:
    with pytest.raises(BadInput, match=r"many calls made by call\(\), not one"):
        await app.schedule_many(call("work"))  # type: ignore[arg-type]
    assert await written(app) == 0


async def test_calls_for_an_id_are_carried_out_in_their_order(app: App) -> None:
    await app.schedule_many(call("work", number, id=f"{number % 3}") for number in range(30))
    found = {action.id: action.spec.payload for action in await app.list()}
    assert found == {"0": b"27", "1": b"28", "2": b"29"}


async def test_the_next_batch_is_made_ready_while_one_is_under_way(app: App) -> None:
    drawn = 0

    def calls() -> Iterator[Call]:
        nonlocal drawn
        for drawn in range(1, 2 * BATCH + 1):
            yield call("work", drawn)

    class Patient(StoreWrapper):
        """Carries out a batch when the next one has been drawn."""

        async def run(self, transition: Transition):
            if transition.name == "schedule" and drawn < 2 * BATCH:
                with anyio.fail_after(10):
                    while drawn < 2 * BATCH:
                        await anyio.lowlevel.checkpoint()
            return await self._inner.run(transition)

        def sibling(self) -> Store:
            return self._inner.sibling()

    await app.schedule("work", 0)  # what is asked once is known then
    app.scheduler._store = Patient(app.scheduler._store)
    assert (await app.schedule_many(calls())).created == 2 * BATCH
