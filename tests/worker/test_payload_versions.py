"""Rows written by one release and run by another: payloads of three versions, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from matrixsched import App, RetryAt, State, call, every
from matrixsched.clock import SeededChance
from matrixsched.errors import BadInput, ConfigurationError, InvalidNumber, InvalidPayload
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
BORN = datetime(2001, 2, 3, tzinfo=UTC)


class ReminderV1(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str


class ReminderV2(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    locale: str = Field(alias="Locale")


class ReminderV3(BaseModel):
    model_config = ConfigDict(extra="forbid")
    first: str
    last: str
    locale: str
    born: datetime


ADA = ReminderV3(first="Ada", last="Lovelace", locale="en", born=BORN)


class Release:
    """One release of a program: an application on the common database, whose handler notes what it is given."""

    def __init__(self, url: str, clock: Any, version: int) -> None:
        self.app = App(url, clock=clock, chance=SeededChance(version))
        self.received: list[Any] = []
        self.neighbours: list[str] = []
        received = self.received

        @self.app.action("neighbour")
        async def neighbour(name: str) -> None:
            self.neighbours.append(name)

        async def take(payload: Any) -> None:
            received.append(payload)

        take.__annotations__["payload"] = {1: ReminderV1, 2: ReminderV2, 3: ReminderV3}[version]
        self.remind = self.app.action("remind", version=version)(take)

    async def run_due(self) -> None:
        await Worker(self.app).run_due()


def with_upcasters(release: Release) -> Release:
    @release.remind.upcast(1)
    def add_locale(old: dict[str, Any]) -> dict[str, Any]:
        return old | {"Locale": "en"}

    if release.remind.version == 3:

        @release.remind.upcast(2)
        def split_name(old: ReminderV2) -> ReminderV3:
            first, _, last = old.name.partition(" ")
            return ReminderV3(first=first, last=last, locale=old.locale, born=BORN)

    return release


@pytest.fixture
async def releases(app: App, database_url: str, clock: Any):
    made = [Release(database_url, clock, version) for version in (1, 2, 3)]
    for one in made:
        await one.app.open()
    yield made[0], with_upcasters(made[1]), made[2]
    for one in made:
        await one.app.close()


async def test_rows_of_three_releases_are_run_by_the_newest(releases):
    one, two, three = releases
    await one.app.schedule(one.remind, ReminderV1(name="Ada Lovelace"), id="a")
    await two.app.schedule(two.remind, ReminderV2(name="Ada Lovelace", Locale="fr"), id="b")
    await three.app.schedule(three.remind, ADA, id="c")
    await with_upcasters(three).run_due()
    assert sorted(three.received, key=lambda one: one.locale) == [ADA, ADA, ADA.model_copy(update={"locale": "fr"})]
    stored = {action.id: action.spec for action in await three.app.list()}
    assert {id: spec.terms.payload_version for id, spec in stored.items()} == {"a": None, "b": 2, "c": 3}
    assert stored["a"].payload == b'{"name":"Ada Lovelace"}'  # lifted when read, never rewritten


async def test_an_older_worker_leaves_newer_rows_to_newer_ones_and_runs_their_neighbours(releases, clock):
    one, two, three = releases
    await three.app.schedule(three.remind, ADA, id="newer")
    await one.app.schedule(one.remind, ReminderV1(name="Ada Lovelace"), id="older")
    await three.app.schedule("neighbour", "n", id="neighbour")
    await two.run_due()
    assert two.received == [ReminderV2(name="Ada Lovelace", Locale="en")]
    assert two.neighbours == ["n"]
    left = (await two.app.get("newer")).status
    assert left.state is State.LIVE
    assert (left.failed, left.interrupted, left.consecutive_failures) == (0, 0, 0)
    assert left.last_error == "its payload is of version 3, which a newer worker takes: this one takes 2"
    clock.advance(timedelta(seconds=10))
    await with_upcasters(three).run_due()
    assert three.received == [ADA]
    assert (await three.app.get("newer")).status.state is State.DONE


async def test_a_newer_row_that_expires_does_so_also_under_an_older_worker(releases, clock):
    _, two, three = releases
    await three.app.schedule(three.remind, ADA, id="newer", expires_at=clock.now() + HOUR)
    clock.advance(2 * HOUR)
    await two.run_due()
    assert (await two.app.get("newer")).status.state is State.EXPIRED


@pytest.mark.parametrize("limit", ["expires_at", "start_within"])
async def test_an_older_worker_leaves_newer_ones_the_time_to_run_what_has_a_limit(releases, clock, limit):
    _, two, three = releases
    limits = {"expires_at": clock.now() + timedelta(seconds=8), "start_within": timedelta(seconds=8)}
    await three.app.schedule(three.remind, ADA, id="newer", **{limit: limits[limit]})
    await two.run_due()
    assert (await two.app.get("newer")).status.state is State.LIVE
    clock.advance(timedelta(seconds=4))
    await with_upcasters(three).run_due()
    assert three.received == [ADA]


async def test_a_repeating_action_of_an_old_release_is_lifted_at_every_tick(releases, clock):
    one, _, three = releases
    await one.app.schedule(one.remind, ReminderV1(name="Ada Lovelace"), id="a", repeat=every(HOUR))
    await one.run_due()
    with_upcasters(three)
    for _ in range(3):
        clock.advance(HOUR)
        await three.run_due()
    assert (len(one.received), three.received) == (1, [ADA, ADA, ADA])
    action = await three.app.get("a")
    assert (action.status.tick, action.spec.payload) == (4, b'{"name":"Ada Lovelace"}')
    clock.advance(HOUR)
    await one.run_due()  # an older worker finds it as it left it
    assert len(one.received) == 2


async def test_moved_and_redriven_actions_keep_their_version(releases, clock):
    _, two, three = releases
    await two.app.schedule(two.remind, ReminderV2(name="Ada Lovelace", Locale="en"), id="a", delay=2 * HOUR)
    await three.app.reschedule("a", delay=HOUR)
    with_upcasters(three)
    clock.advance(HOUR)
    await three.run_due()
    await three.app.run_now("a")
    await three.run_due()
    assert three.received == [ADA, ADA]


async def test_a_worker_does_not_start_while_upcasters_are_missing_and_says_all_of_them(releases):
    _, _, three = releases

    @three.remind.upcast(1)
    def add_locale(old: dict[str, Any]) -> dict[str, Any]:
        return old

    @three.app.action("sum", version=9)
    async def add(numbers: list[int]) -> None: ...

    @add.upcast(4)
    def four(old: list[int]) -> list[int]:
        return old

    assert three.app.handlers.faults() == [
        "handler 'remind' takes version 3, but has no upcaster from version 2: register it with @handler.upcast(2), "
        "or say with oldest_version= that no older payloads are left",
        "handler 'sum' takes version 9, but has no upcaster from version 1 to 3, 5 to 8: register it with "
        "@handler.upcast(1), or say with oldest_version= that no older payloads are left",
    ]
    with pytest.raises(ConfigurationError) as refused:
        Worker(three.app)
    assert refused.value.faults == tuple(three.app.handlers.faults())


async def test_upcasters_need_not_reach_further_back_than_the_oldest_version(app, releases):
    one, two, _ = releases
    received = []

    @app.action("remind", version=3, oldest_version=2)
    async def remind(reminder: dict[str, Any]) -> None:
        received.append(reminder)

    @remind.upcast(2)
    def note(old: dict[str, Any]) -> dict[str, Any]:
        return old | {"lifted": True}

    await one.app.schedule(one.remind, ReminderV1(name="Ada"), id="gone")
    await two.app.schedule(two.remind, ReminderV2(name="Ada", Locale="en"), id="old")
    await Worker(app).run_due()
    assert received == [{"name": "Ada", "Locale": "en", "lifted": True}]
    gone = (await app.get("gone")).status
    assert gone.state is State.QUARANTINED
    assert "nothing leads to version 3 from version 1" in (gone.last_error or "")


async def test_what_contradicts_the_oldest_version_is_refused(app):
    with pytest.raises(InvalidNumber, match="oldest_version of handler 'remind'"):
        app.action("remind", version=3, oldest_version=4)(lambda payload: None)

    @app.action("remind", version=3, oldest_version=2)
    async def remind(reminder: dict[str, Any]) -> None: ...

    with pytest.raises(BadInput, match="remove it, or declare the handler with oldest_version=1"):

        @remind.upcast(1)
        def add_locale(old: dict[str, Any]) -> dict[str, Any]:
            return old


async def test_a_handler_that_is_complete_or_takes_nothing_has_no_faults(releases):
    _, two, three = releases
    with_upcasters(three)

    @three.app.action("tick", version=7)
    async def tick() -> None: ...

    assert three.app.handlers.faults() == two.app.handlers.faults() == []
    await three.app.schedule(tick, id="t")
    await two.app.schedule("tick", {"of": "old"}, id="old")
    await three.run_due()
    assert [(await three.app.get(id)).status.state for id in ("t", "old")] == [State.DONE] * 2


def raises(old: dict[str, Any]) -> object:
    raise ValueError(f"very secret: {old}")


def leaves(old: dict[str, Any]) -> object:
    raise SystemExit(f"very secret: {old}")


def takes_another(old: ReminderV2) -> object:
    return old


def returns_nothing(old: dict[str, Any]) -> None: ...


def returns_what_is_no_json(old: dict[str, Any]) -> object:
    return {"name": object(), "Locale": "very secret"}


def returns_nan(old: dict[str, Any]) -> object:
    return {"name": "very secret", "Locale": float("nan")}


class Sealed(BaseModel):
    name: SecretStr
    locale: str = Field(alias="Locale")


def returns_a_secret(old: ReminderV1) -> object:
    return Sealed(name=SecretStr(old.name), Locale="en")


def returns_a_secret_inside(old: ReminderV1) -> object:
    return {"name": old.name, "Locale": "en", "sealed": [returns_a_secret(old)]}


BROKEN: dict[Callable[[Any], object], str] = {
    raises: "the upcaster from version 1 failed: it raised ValueError. Correct the upcaster",
    leaves: "the upcaster from version 1 failed: it raised SystemExit. Correct the upcaster",
    takes_another: "the upcaster from version 1 failed: it takes another payload: Locale: Field required",
    returns_nothing: "lifted from version 1, it does not fit: payload: Input should be an object",
    returns_what_is_no_json: "the upcaster from version 1 failed: it raised PydanticSerializationError",
    returns_nan: "the upcaster from version 1 failed: it raised ValueError",
    returns_a_secret: "the upcaster from version 1 failed: it returned a secret, which would be stored as asterisks",
    returns_a_secret_inside: "the upcaster from version 1 failed: it returned a secret, which",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__)
async def test_what_an_upcaster_cannot_lift_is_quarantined_alone_and_without_a_word_of_it(releases, broken):
    one, two, _ = releases
    await one.app.schedule(one.remind, ReminderV1(name="very secret"), id="a")
    await one.app.schedule("neighbour", "n", id="n")
    fresh = Release(two.app.url, two.app.clock, 2)
    fresh.remind.upcast(1)(broken)
    async with fresh.app:
        await fresh.run_due()
        action = await fresh.app.get("a")
    assert (fresh.received, fresh.neighbours) == ([], ["n"])
    assert action.status.state is State.QUARANTINED
    assert action.spec.payload == b'{"name":"very secret"}'
    assert action.status.last_error.startswith(f"payload for handler 'remind': {BROKEN[broken]}")
    assert "very secret" not in action.status.last_error
    await two.app.run_now("a")  # with a corrected upcaster it runs
    await two.run_due()
    assert two.received == [ReminderV2(name="very secret", Locale="en")]


async def test_a_row_that_no_upcaster_leads_on_from_is_quarantined_with_the_reason(releases):
    one, _, _ = releases
    worker = Worker(one.app)  # begun before the handler below was registered, or it would have been refused

    @one.app.action("late", version=3)
    async def late(payload: dict[str, Any]) -> None: ...

    @late.upcast(2)
    def lift(old: dict[str, Any]) -> dict[str, Any]:
        return old

    other = Release(one.app.url, one.app.clock, 2)
    async with other.app:
        await other.app.schedule("late", {"a": 1}, id="a")
        await other.app.schedule("late", {"a": 1}, id="b", payload_version=2)
    await worker.run_due()
    stuck = (await one.app.get("a")).status
    assert stuck.state is State.QUARANTINED
    assert stuck.last_error == (
        "payload for handler 'late': nothing leads to version 3 from version 1. "
        "Register it with @handler.upcast(version); then `matrixsched actions redrive` what was quarantined."
    )
    assert (await one.app.get("b")).status.state is State.DONE


async def test_callers_that_know_the_handler_only_by_name_say_which_version_they_write(releases, app):
    _, _, three = releases
    plain = {"name": "Ada Lovelace", "Locale": "en"}
    await app.schedule("remind", {"name": "Ada Lovelace"}, id="a")
    await app.schedule("remind", plain, id="b", payload_version=2)
    await app.schedule_many([call("remind", ADA, id="c", payload_version=3)])
    app.sync.schedule("remind", plain, id="d", payload_version=2)
    app.sync.close()
    await with_upcasters(three).run_due()
    assert three.received == [ADA] * 4


@pytest.mark.parametrize("version", [0, -1, 1_000_001, True, "2", 1.0])
async def test_versions_out_of_range_are_refused_wherever_they_are_given(app, version):
    with pytest.raises(InvalidNumber, match="version of handler 'x' is"):
        app.action("x", version=version)(lambda payload: None)
    with pytest.raises(InvalidNumber, match="payload_version is"):
        await app.schedule("x", 1, payload_version=version)
    handler = app.action("x", version=3)(lambda payload: None)
    with pytest.raises(InvalidNumber, match="from_version"):
        handler.upcast(version)(lambda old: old)
    assert await app.list() == []


async def nothing_is_awaited(old: Any) -> Any: ...


def two_arguments(old: Any, more: Any) -> Any: ...


def by_keyword(*, old: Any) -> Any: ...


def generator(old: Any):
    yield old


def nowhere(old: "Nowhere") -> Any: ...  # type: ignore[name-defined]  # noqa: F821, UP037


MISTAKES: dict[Any, str] = {
    nothing_is_awaited: "must be a plain function",
    generator: "must be a plain function",
    two_arguments: "must take one argument, the older payload",
    by_keyword: "must take one argument, the older payload",
    nowhere: "an annotation cannot be read (NameError",
    "no function": "must be a function, not str",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: getattr(one, "__name__", one))
def test_a_mistaken_upcaster_is_refused_at_registration_in_words(mistake):
    handler = App("sqlite://").action("x", version=2)(lambda payload: None)
    with pytest.raises(BadInput) as refused:
        handler.upcast(1)(mistake)
    assert str(refused.value).startswith("upcaster of handler 'x' from version 1")
    assert MISTAKES[mistake] in str(refused.value)


def test_contradictory_registrations_are_refused_with_the_remedy():
    app = App("sqlite://")
    handler = app.action("x", version=2)(lambda payload: None)
    handler.upcast(1)(lambda old: old)
    with pytest.raises(BadInput, match="from version 1 is registered already"):
        handler.upcast(1)(lambda old: old)
    with pytest.raises(BadInput, match=r"leads to version 3, but .* version 2; declare it as .*version=3"):
        handler.upcast(2)(lambda old: old)
    nothing = app.action("nothing", version=2)(lambda: None)
    with pytest.raises(BadInput, match="takes no payload"):
        nothing.upcast(1)


async def test_a_version_that_contradicts_the_registered_handler_is_refused(releases):
    _, two, _ = releases
    with pytest.raises(BadInput, match="takes version 2: leave payload_version out"):
        await two.app.schedule("remind", ReminderV2(name="x", Locale="en"), payload_version=1)
    await two.app.schedule(two.remind, ReminderV2(name="x", Locale="en"), id="same", payload_version=2)
    with pytest.raises(InvalidPayload):
        await two.app.schedule(two.remind, ReminderV1(name="x"))
    assert [action.id for action in await two.app.list()] == ["same"]


def test_an_upcaster_can_still_be_called_as_the_function_it_is():
    handler = App("sqlite://").action("x", version=2)(lambda payload: None)

    @handler.upcast(1)
    def lift(old: int) -> int:
        return old + 1

    assert lift(1) == 2


async def test_a_payload_of_version_one_is_stored_without_a_word_of_versions(releases):
    one, _, _ = releases
    await one.app.schedule(one.remind, ReminderV1(name="x"), id="a", payload_version=1)
    assert (await one.app.get("a")).spec.terms.payload_version is None


async def test_a_handler_may_ask_for_another_try_of_what_was_lifted(app, clock, database_url):
    tries: list[int] = []

    @app.action("count", version=2)
    async def count(number: int) -> RetryAt | None:
        tries.append(number)
        return RetryAt(HOUR) if len(tries) == 1 else None

    @count.upcast(1)
    def double(old: str) -> int:
        return 2 * int(old)

    writer = App(database_url, clock=clock, chance=SeededChance(7))
    async with writer:
        await writer.schedule("count", "21", id="c")
    await Worker(app).run_due()
    clock.advance(HOUR)
    await Worker(app).run_due()
    assert tries == [42, 42]
