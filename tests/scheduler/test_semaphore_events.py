"""The events of semaphores: how they are called, who may be told, and that nothing holds them up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio.to_thread
import pytest

from matrixsched import Acquired, App, Context, Retry, SlowDown, State, TryRelease, call
from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput, InvalidLimit, InvalidSemaphoreKey, ReservedName
from matrixsched.rules.explanation import Why
from matrixsched.rules.names import NAME_BYTES_MAX
from matrixsched.rules.semaphore import KEY_BYTES_MAX, acquired_handler, event_id, try_release_handler
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
EVENT = event_id(acquired_handler("pool"), "a")
LONGEST_KEY = "%" * KEY_BYTES_MAX
RESERVED = ["acquired:pool", "try_release:pool", "acquired:", EVENT]


async def ids_of_actions(app: App) -> list[str]:
    return [action.id async for action in app.each()]


# Names that are long.


@pytest.mark.parametrize("key", ["pool", LONGEST_KEY, "ü" * (KEY_BYTES_MAX // 2)], ids=["short", "longest", "umlauts"])
@pytest.mark.parametrize("task", ["|" * NAME_BYTES_MAX, "%" * NAME_BYTES_MAX, "|%" * 128, "ü" * 128])
async def test_a_task_of_the_longest_id_is_told_and_asked(app: App, key: str, task: str):
    told: list[str] = []

    @app.on_acquired(key)
    async def hand_out(event: Acquired) -> None:
        told.append(f"acquired {event.task_id}")

    @app.on_try_release(key)
    async def step_back(event: TryRelease) -> None:
        told.append(f"asked {event.task_id}")

    pool = await app.semaphores.get_or_create(key, active=1)
    await pool.enqueue(task, 1)
    await Worker(app).run_due()
    await pool.enqueue("urgent", 2)
    await Worker(app).run_due()
    assert told == [f"acquired {task}", f"asked {task}"]
    for handler in (acquired_handler(key), try_release_handler(key)):
        assert (await app.get(event_id(handler, task))).status.state is State.DONE


async def test_a_later_event_of_a_long_id_takes_the_place_of_the_earlier_one(app: App):
    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None: ...

    pool = await app.semaphores.get_or_create("pool", active=1)
    task = "|" * NAME_BYTES_MAX
    for _ in range(2):
        await pool.enqueue(task, 1)
        await Worker(app).run_due()
        await pool.release(task)
    assert len(await ids_of_actions(app)) == 1


async def test_a_key_is_short_enough_to_call_handlers_after_it(app: App):
    key = "x" * (KEY_BYTES_MAX + 1)
    semaphores = app.semaphores
    for asking in (
        semaphores.get_or_create(key),
        semaphores.get(key),
        semaphores.settings(key),
        semaphores.update(key),
    ):
        with pytest.raises(InvalidSemaphoreKey, match="^semaphore key has 245 bytes, 244 are allowed. Use 1 to 244"):
            await asking
    for register in (app.on_acquired, app.on_try_release):
        with pytest.raises(InvalidSemaphoreKey, match="^semaphore key has 245 bytes, 244 are allowed"):
            register(key)
    assert await semaphores.list() == []


# Names that are reserved.


@pytest.mark.parametrize("name", ["acquired:pool", "try_release:pool", "acquired:"])
async def test_no_other_handler_is_called_like_one_that_is_told_of_a_semaphore(app: App, name: str):
    with pytest.raises(ReservedName, match="^handler name begins with .*: semaphores write their events themselves"):

        @app.action(name)
        async def mine() -> None: ...

    assert app.handlers.names == []


@pytest.mark.parametrize("id", RESERVED)
async def test_no_action_of_ones_own_is_called_like_an_event(app: App, id: str):
    guid = (await app.schedule("note", id="mine")).guid
    with pytest.raises(ReservedName, match="^id begins with .*Choose another name"):
        await app.schedule("note", id=id)
    with pytest.raises(ReservedName):
        await app.schedule("note", id=id, expected_guid=guid)
    with pytest.raises(ReservedName):
        await app.schedule_many([call("note", id="other"), call("note", id=id)])
    assert await ids_of_actions(app) == ["mine"]


async def test_nor_from_synchronous_code(app: App):
    def work() -> None:
        with app.sync as sync, pytest.raises(ReservedName):
            sync.schedule("note", id=EVENT)

    await anyio.to_thread.run_sync(work)
    assert await ids_of_actions(app) == []


async def test_only_semaphores_write_events(app: App):
    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None: ...

    for handler in (hand_out, "acquired:pool", "try_release:elsewhere"):
        with pytest.raises(ReservedName, match="^handler name begins with"):
            await app.schedule(handler)
    assert await ids_of_actions(app) == []


@pytest.mark.parametrize("name", ["acquired", "try_release", "Acquired:pool", "re-acquired:pool"])
async def test_what_is_only_like_it_is_free(app: App, name: str):
    @app.action(name)
    async def mine() -> None: ...

    assert (await app.schedule(mine, id=name)).created


async def test_an_event_is_seen_cancelled_and_run_again_by_its_id(app: App):
    told: list[str] = []

    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None:
        told.append(event.task_id)

    pool = await app.semaphores.get_or_create("pool", active=1)
    await pool.enqueue("a", 1)
    await Worker(app).balancing.step()
    assert (await app.cancel(EVENT)).changed
    await Worker(app).run_due()
    assert told == []
    assert (await app.run_now(EVENT)).changed
    await Worker(app).run_due()
    assert told == ["a"]
    assert (await app.get(EVENT)).status.state is State.DONE


# Who may be told.


class Mine(Acquired):
    """Not what is told."""


def takes_the_other(event: TryRelease) -> None: ...
def takes_a_dict(event: dict[str, Any]) -> None: ...
def takes_its_own_model(event: Mine) -> None: ...
def takes_either(event: Acquired | TryRelease) -> None: ...
def takes_nothing() -> None: ...
def takes_a_context(context: Context) -> None: ...
def takes_two(event: Acquired, other: Acquired) -> None: ...
def takes_it_by_keyword(*, event: Acquired) -> None: ...


@pytest.mark.parametrize(
    "wrong",
    [
        takes_the_other,
        takes_a_dict,
        takes_its_own_model,
        takes_either,
        takes_nothing,
        takes_a_context,
        takes_two,
        takes_it_by_keyword,
    ],
)
async def test_who_does_not_take_the_event_is_refused(app: App, wrong: Callable[..., None]):
    with pytest.raises(
        BadInput, match=r"'acquired:pool'.*\(event: Acquired\) or \(event: Acquired, context: Context\)"
    ):
        app.on_acquired("pool")(wrong)
    assert app.handlers.names == []


async def test_nor_is_one_asked_to_step_back_who_takes_something_else(app: App):
    def takes_acquired(event: Acquired) -> None: ...

    for wrong in (takes_acquired, takes_nothing):
        with pytest.raises(BadInput, match=r"declare it as \(event: TryRelease\) or"):
            app.on_try_release("pool")(wrong)
    assert app.handlers.names == []


async def test_without_annotations_it_is_an_event_all_the_same(app: App):
    told: list[object] = []
    app.on_acquired("pool")(lambda event, context: told.append((type(event), context.handler)))
    app.on_try_release("pool")(lambda event: told.append(type(event)))
    pool = await app.semaphores.get_or_create("pool", active=1)
    await pool.enqueue("a", 1)
    await Worker(app).run_due()
    await pool.enqueue("urgent", 2)
    await Worker(app).run_due()
    assert told == [(Acquired, "acquired:pool"), TryRelease]


# They do not give up, and nothing holds them up.


class Failing:
    """A handler that fails for ever, and how long after the one before each attempt was."""

    def __init__(self, app: App, clock: ManualClock, retry: Retry | None = None) -> None:
        self.tries = 0

        @app.on_acquired("pool", retry=retry)
        async def hand_out(event: Acquired) -> None:
            self.tries += 1
            raise RuntimeError

        self._app, self._clock = app, clock

    async def delay(self) -> timedelta:
        """Until the next attempt, after this one."""
        await Worker(self._app).run_due()
        due_at = (await self._app.get(EVENT)).status.scheduled_at
        delay = due_at - self._clock.now()
        self._clock.advance(delay)
        return delay


async def test_what_fails_is_told_again_without_end_at_most_a_minute_later(app: App, clock: ManualClock):
    failing = Failing(app, clock)
    await (await app.semaphores.get_or_create("pool", active=1)).enqueue("a", 1)
    delays = [await failing.delay() for _ in range(20)]
    assert failing.tries == 20
    assert 0.9 * SECOND <= delays[0] <= SECOND
    assert all(0.9 * MINUTE <= delay <= MINUTE for delay in delays[6:])
    assert (await app.get(EVENT)).status.state is State.LIVE


async def test_a_retry_of_ones_own_counts(app: App, clock: ManualClock):
    failing = Failing(app, clock, Retry(max_attempts=2, jitter=0))
    await (await app.semaphores.get_or_create("pool", active=1)).enqueue("a", 1)
    assert await failing.delay() == SECOND
    await Worker(app).run_due()
    assert (await app.get(EVENT)).status.state is State.FAILED


@pytest.mark.parametrize("name", ["handler:acquired:pool", "handler:try_release:pool"])
async def test_events_have_no_limit(app: App, name: str):
    with pytest.raises(InvalidLimit, match="events of semaphores pass no gate.*give the semaphore fewer places"):
        await app.limits.set(name, "1/s")
    with pytest.raises(InvalidLimit, match="events of semaphores pass no gate"):
        await app.limits.slow_down(name, MINUTE)
    assert await app.limits.list() == []
    assert not await app.limits.remove(name)
    assert (await app.limits.set(f"key:{name}", "1/s")).name == f"key:{name}"


async def test_no_limit_holds_an_event_or_is_said_to(app: App):
    told: list[str] = []

    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None:
        told.append(event.task_id)

    await app.limits.set("global", "1/h")
    await app.limits.slow_down("global", MINUTE)
    await (await app.semaphores.get_or_create("pool", active=1)).enqueue("a", 1)
    await Worker(app).balancing.step()
    reasons = (await app.explain(EVENT)).reasons
    assert not {reason.why for reason in reasons} & {Why.LIMIT, Why.SLOWED, Why.TURN}
    assert not any("limit" in reason.text for reason in reasons)
    await Worker(app).run_due()
    assert told == ["a"]


async def test_who_is_told_to_slow_down_waits_alone(app: App, clock: ManualClock):
    told: list[str] = []

    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> SlowDown | None:
        told.append(event.task_id)
        return SlowDown(MINUTE) if told == ["a"] else None

    pool = await app.semaphores.get_or_create("pool", active=2)
    await pool.enqueue("a", 1)
    await Worker(app).run_due()
    await pool.enqueue("b", 1)
    await Worker(app).run_due()
    assert told == ["a", "b"]
    assert await app.limits.list() == []
    clock.advance(MINUTE)
    await Worker(app).run_due()
    assert told == ["a", "b", "a"]
