"""Bad input: a typed error with facts and a remedy, nothing written, the same on both databases."""

from datetime import UTC, datetime, time, timedelta
from urllib.parse import quote

import anyio
import anyio.to_thread
import pytest
from pydantic import BaseModel

from matrixsched import App, Daily, Retry, call, cron, every
from matrixsched.clock import ManualClock
from matrixsched.errors import (
    BadDatabaseUrl,
    BadInput,
    DatabaseUnavailable,
    InvalidDuration,
    InvalidId,
    InvalidNumber,
    InvalidPayload,
    InvalidTime,
    MatrixSchedError,
    NeverRuns,
    NotOpen,
    PayloadTooLarge,
    SchemaMissing,
)

pytestmark = pytest.mark.anyio

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Money(BaseModel):
    amount: float
    note: str = ""


class Other(BaseModel):
    amount: float


@pytest.fixture
def pay(app: App):
    @app.action("pay")
    async def pay(money: Money) -> None: ...

    return pay


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"id": ""}, InvalidId),
        ({"id": "x" * 257}, InvalidId),
        ({"id": "ü" * 129}, InvalidId),
        ({"id": "a\x00b"}, InvalidId),
        ({"id": "a\nb"}, InvalidId),
        ({"id": "\ud83d"}, InvalidId),
        ({"id": 5}, InvalidId),
        ({"at": datetime(2030, 1, 1)}, InvalidTime),  # noqa: DTZ001
        ({"at": datetime(2201, 1, 1, tzinfo=UTC)}, InvalidTime),
        ({"at": datetime.max.replace(tzinfo=UTC)}, InvalidTime),
        ({"at": datetime(1, 1, 1, tzinfo=UTC)}, InvalidTime),
        ({"at": "tomorrow"}, InvalidTime),
        ({"delay": timedelta(seconds=-1)}, InvalidDuration),
        ({"delay": timedelta.max}, InvalidDuration),
        ({"delay": 60}, InvalidDuration),
        ({"at": NOON, "delay": timedelta(seconds=1)}, InvalidTime),
        ({"expires_at": datetime(2030, 1, 1)}, InvalidTime),  # noqa: DTZ001
        ({"at": NOON, "expires_at": NOON}, InvalidTime),
        ({"start_within": timedelta(0)}, InvalidDuration),
        ({"timeout": timedelta(seconds=-1)}, InvalidDuration),
        ({"timeout": timedelta(0)}, InvalidDuration),
        ({"priority": -1}, InvalidNumber),
        ({"priority": 2**63}, InvalidNumber),
        ({"priority": 1.5}, InvalidNumber),
        ({"priority": float("nan")}, InvalidNumber),
        ({"request_id": "a\x00"}, InvalidId),
        ({"exists": "maybe"}, BadInput),
        ({"retry": 3}, BadInput),
        ({"retry": {}}, BadInput),
        ({"repeat": 3}, BadInput),
        ({"repeat": timedelta(hours=1)}, BadInput),
        ({"repeat": "daily"}, BadInput),
        ({"repeat": "0 9 * * *"}, BadInput),
        ({"repeat": every(HOUR, jitter=HOUR), "start_within": HOUR}, BadInput),
        ({"repeat": cron("0 9 * * *", exclude=[Daily(time(8), time(10))])}, NeverRuns),
        ({"repeat": every(HOUR, exclude=[Daily(time(0), time(12)), Daily(time(12), time(0))])}, NeverRuns),
        ({"id": "p", "expected_guid": "abc"}, BadInput),
        ({"id": "p", "expected_guid": 5}, BadInput),
    ],
    ids=repr,
)
async def test_an_option_that_cannot_be_is_refused_and_nothing_is_written(app, pay, options, error):
    with pytest.raises(error) as refused:
        await app.schedule(pay, Money(amount=1), **options)
    assert refused.value.remedy in str(refused.value)
    assert await app.list() == []


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (Other(amount=1), InvalidPayload),
        ({"amount": "much"}, InvalidPayload),
        ({}, InvalidPayload),
        (None, InvalidPayload),
        ("text", InvalidPayload),
        (Money(amount=float("nan")), InvalidPayload),
        (Money(amount=float("inf")), InvalidPayload),
        (Money(amount=1, note="\ud800"), InvalidPayload),
        (Money(amount=1, note="x" * 1_000_001), PayloadTooLarge),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_a_payload_that_the_handler_cannot_take_is_refused(app, pay, payload, error):
    with pytest.raises(error) as refused:
        await app.schedule(pay, payload, id="p")
    assert "pay" in str(refused.value)
    assert "much" not in str(refused.value), "a value of the payload must not be shown"
    assert await app.list() == []


async def test_deeply_nested_and_unknown_values_are_refused_for_handlers_elsewhere_too(app):
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    for payload in (nested, {"at": object()}, {"x": float("nan")}, {1: {2: {3, 4}}, "b": float("inf")}):
        with pytest.raises(InvalidPayload):
            await app.schedule("elsewhere", payload)
    assert await app.list() == []


async def test_unknown_handlers_and_strange_calls_are_refused(app, pay):
    for handler in (None, 5, len, lambda: None):
        with pytest.raises(BadInput):
            await app.schedule(handler)
    with pytest.raises(InvalidId):
        await app.schedule("")
    with pytest.raises(BadInput):
        await app.schedule_many([("pay", Money(amount=1))])
    with pytest.raises(TypeError):
        call("pay", Money(amount=1), colour="red")
    with pytest.raises(BadInput):
        await app.list(limit=0)
    assert await app.list() == []


async def test_a_name_is_registered_once_and_its_signature_must_be_clear(app, pay):
    with pytest.raises(BadInput, match="registered already"):
        app.action("pay")(lambda: None)
    with pytest.raises(BadInput, match="must take"):

        @app.action("three")
        async def three(a: int, b: int, c: int) -> None: ...

    with pytest.raises(InvalidDuration):
        app.action("slow", timeout=timedelta(0))(lambda: None)


@pytest.mark.parametrize("wrong", [{"max_attempts": 0}, {"factor": float("nan")}, {"jitter": -1}])
async def test_policies_are_checked_before_they_are_used(wrong):
    with pytest.raises(InvalidNumber):
        Retry(**wrong)
    with pytest.raises(InvalidDuration):
        every(timedelta(0))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "reminders.db",
        "mysql://user:hunter2@host/db",
        "sqlite:/one-slash.db",
        "sqlite://host/path",
        "postgresql://user:hunter2@host:notaport/db",
        "postgresql://user:hunter2@[::1/db",
        "postgresql://user:hunter2@host/db?listen=perhaps",
        "postgresql://user:1/hunter2@host/db",
        "postgresql://user:1#hunter2@host/db",
        "postgresql://user:1?hunter2@host/db",
        "sqlite:///reminders.db?timeout=5",
    ],
)
def test_a_database_url_that_cannot_be_read_is_refused_without_showing_it(url):
    with pytest.raises(BadDatabaseUrl) as refused:
        App(url)
    assert "hunter2" not in str(refused.value)
    assert "postgresql://user@host/database" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@127.0.0.1:1/db",
        "postgresql://user:hunter2@does-not-exist.invalid/db",
        "postgresql://user:hunter2@127.0.0.1:1/db?target_session_attrs=read-write",
    ],
)
async def test_an_unreachable_database_says_what_to_check_and_shows_no_password(url):
    app = App(url, clock=ManualClock())
    with pytest.raises(DatabaseUnavailable) as refused:
        await app.open()
    told = repr(refused.value) + str(refused.value) + repr(refused.value.__cause__) + repr(refused.value.__context__)
    assert "hunter2" not in told
    assert "Check that it runs" in str(refused.value)


@pytest.mark.direct("a pooler has words of its own for a missing database")
async def test_a_wrong_password_or_database_is_an_unavailable_database(postgres_dsn):
    app = App(postgres_dsn.rpartition("/")[0] + "/nowhere")
    with pytest.raises(DatabaseUnavailable, match="there is no such database"):
        await app.open()


async def test_a_file_that_is_no_database_is_not_touched(tmp_path):
    file = tmp_path / "letter.db"
    file.write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(DatabaseUnavailable, match=r"not a database\. Check the path"):
        await App(f"sqlite:///{file}").open()
    assert file.read_text() == "Dear Sir or Madam, " * 100


@pytest.mark.parametrize(("path", "why"), [("nowhere/x.db", "there is no folder"), ("", "is a folder")])
async def test_a_path_that_cannot_be_a_file_says_what_to_check(tmp_path, path, why):
    with pytest.raises(DatabaseUnavailable, match=why) as refused:
        await App(f"sqlite:///{tmp_path}/{path}").open()
    assert "Check the path" in str(refused.value)
    assert "host" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    assert not tmp_path.with_name(f"{tmp_path.name}.lock").exists()


async def test_a_mistyped_path_makes_no_file_and_says_init(tmp_path):
    app = App(f"sqlite:///{tmp_path}/typo.db")
    with pytest.raises(SchemaMissing, match=f"there is no SQLite database {tmp_path}/typo.db.*matrixsched init"):
        await app.open()
    with pytest.raises(SchemaMissing, match="matrixsched init"), app.sync:
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.db", "a b?c#d%20é.db"])
async def test_init_makes_the_file_that_was_missing(tmp_path, name):
    app = App(f"sqlite:///{tmp_path}/{quote(name)}")
    with pytest.raises(SchemaMissing):
        await app.open()
    await app.init()
    assert (tmp_path / name).exists()
    async with app:
        assert await app.list() == []


async def test_a_database_without_schema_says_init(database_url):
    with pytest.raises(SchemaMissing, match="matrixsched init"):
        await App(database_url).open()


async def test_an_application_that_is_not_open_says_so(database_url):
    app = App(database_url)
    await app.init()
    with pytest.raises(NotOpen, match="async with app"):
        await app.get("x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "alive"},
        {"state": 5},
        {"handler": ""},
        {"handler": 5},
        {"id_prefix": "a\x00"},
        {"id_prefix": 5},
        {"after": "a\x00"},
        {"after": 5},
        {"limit": "10"},
        {"limit": 1.5},
        {"limit": True},
        {"limit": 10_001},
        {"due_before": "noon"},
    ],
    ids=repr,
)
async def test_a_listing_of_what_cannot_be_is_refused(app, wrong):
    with pytest.raises(BadInput):
        await app.list(**wrong)


async def test_a_state_is_taken_by_its_name_and_an_empty_prefix_fits_all(app, pay):
    await app.schedule(pay, Money(amount=1), id="p")
    assert len(await app.list(state="live", id_prefix="")) == 1
    assert await app.list(state="cancelled") == []


async def test_a_guid_is_taken_as_text(app, pay):
    guid = (await app.schedule(pay, Money(amount=1), id="p")).guid
    moved = await app.reschedule("p", expected_guid=str(guid))
    assert (await app.schedule(pay, Money(amount=2), id="p", expected_guid=str(moved.guid))).changed
    for change in (app.cancel, app.run_now, app.reschedule):
        with pytest.raises(BadInput, match="expected_guid"):
            await change("p", expected_guid="abc")


async def test_the_history_of_what_cannot_be_is_refused(app):
    for id in ("", 5, "a\x00"):
        with pytest.raises(InvalidId):
            await app.history(id)
    assert await app.history("nobody") == []
    with app.sync:
        assert await anyio.to_thread.run_sync(app.sync.history, "nobody") == []


async def test_a_handler_without_a_name_is_refused_at_once(app):
    with pytest.raises(BadInput, match="parentheses"):

        @app.action
        async def nameless() -> None: ...


async def test_every_error_is_one_of_ours(app, pay):
    with pytest.raises(MatrixSchedError):
        await app.get("\x00")
    with pytest.raises(InvalidId):
        await app.cancel("x" * 300)
    with pytest.raises(InvalidTime):
        await app.reschedule("x", at=datetime(2030, 1, 1))  # noqa: DTZ001
