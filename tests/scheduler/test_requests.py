"""What callers are promised about their requests: a limit to every wait, and one effect for one request."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from support.drivers import async_engine

from matrixsched import App, State, call, every
from matrixsched.calls import Scheduled
from matrixsched.errors import (
    ActionExists,
    ActionFinished,
    ActionNotFound,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    GuidMismatch,
    OutcomeUnknown,
)
from matrixsched.ops import bulk
from matrixsched.ops.bulk import Selection, Tally
from matrixsched.scheduler_policy import SchedulerPolicy

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@pytest.fixture
async def engine(postgres_dsn: str) -> AsyncIterator[AsyncEngine]:
    engine = async_engine(postgres_dsn, "asyncpg")
    yield engine
    await engine.dispose()


CHANGES = {
    "cancel": lambda app: app.cancel("hot"),
    "reschedule": lambda app: app.reschedule("hot", delay=HOUR),
    "run_now": lambda app: app.run_now("hot"),
    "schedule_many": lambda app: app.schedule_many([call("note", id="cold"), call("note", id="hot")]),
}


# On SQLite there is one lock for all writers, and its wait has a limit of its own.
@pytest.mark.parametrize("change", [*CHANGES, "expected_guid"])
async def test_a_change_of_a_locked_action_ends_busy_and_holds_up_nobody(postgres_dsn, clock, engine, change):
    policy = SchedulerPolicy(lock_timeout=timedelta(milliseconds=10), lock_patience=timedelta(milliseconds=300))
    app = App(postgres_dsn, clock=clock, policy=policy)
    await app.init(shards=2)
    busy: list[str] = []
    written_after: list[int] = []
    async with app, engine.begin() as connection:
        guid = (await app.schedule("note", id="hot", delay=HOUR)).guid
        await app.schedule("note", id="hot", delay=HOUR, connection=connection)

        async def waits() -> None:
            try:
                if change == "expected_guid":
                    await app.schedule("note", id="hot", expected_guid=guid)
                else:
                    await CHANGES[change](app)
            except DatabaseBusy as error:
                busy.append(str(error))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as callers:
                for _ in range(8):
                    callers.start_soon(waits)
                await anyio.wait_all_tasks_blocked()
                for _ in range(10):
                    await app.schedule("note", id="other")
                written_after.append(len(busy))
        assert len(busy) == 8
        assert written_after[0] < 8, "the others waited for the locked action"
        assert (await app.get("hot")).meta.guid == guid
        with pytest.raises(Exception, match="cold"):
            await app.get("cold")


async def test_in_a_callers_transaction_the_callers_own_limit_counts(postgres_dsn, clock, engine):
    app = App(postgres_dsn, clock=clock)
    await app.init(shards=2)
    async with app, engine.begin() as connection:
        await app.schedule("note", id="n", delay=HOUR)
        await connection.exec_driver_sql("set local lock_timeout = '7s'")
        await app.reschedule("n", delay=HOUR, connection=connection)
        await app.cancel("n", connection=connection)
        assert (await connection.exec_driver_sql("show lock_timeout")).scalar() == "7s"


async def test_a_change_waits_a_while_for_a_transaction_that_ends(postgres_dsn, clock, engine):
    app = App(postgres_dsn, clock=clock, policy=SchedulerPolicy(lock_patience=timedelta(seconds=30)))
    await app.init(shards=2)
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    async with app, anyio.create_task_group() as group, engine.connect() as onlooker:
        await app.schedule("note", id="hot", delay=HOUR)
        async with engine.begin() as connection:
            await app.reschedule("hot", delay=2 * HOUR, connection=connection)
            group.start_soon(app.cancel, "hot")
            with anyio.fail_after(20):
                while not (await onlooker.exec_driver_sql(waiting)).scalar():
                    await onlooker.rollback()
    async with app:
        assert (await app.get("hot")).status.state == "cancelled"


async def test_the_same_changes_on_both_databases_without_anybody_else(app):
    guid = (await app.schedule("note", id="hot", delay=HOUR)).guid
    assert (await app.schedule("note", id="hot", expected_guid=guid)).changed
    for name in ("cancel", "run_now", "reschedule", "schedule_many"):
        before = (await app.get("hot")).meta.guid
        await CHANGES[name](app)
        assert (await app.get("hot")).meta.guid != before


class Failing:
    """Stands before a store: carries out what is asked, then fails as told, one failure for each try."""

    def __init__(self, app: App, *failures: Exception) -> None:
        self._run, self._failures = app.store.run, list(failures)
        app.store.run = self.run

    async def run(self, transition):
        answer = await self._run(transition)
        if self._failures and transition.name == "schedule":
            raise self._failures.pop(0)
        return answer


async def test_after_an_unknown_outcome_no_failure_is_taken_for_a_definite_one(database_url):
    app = App(database_url)
    await app.init(shards=2)
    async with app:
        Failing(app, OutcomeUnknown("lost"), DatabaseError("refused"), DatabaseUnavailable("away"))
        answers: dict[str, Scheduled] = {}

        async def caller(id: str) -> None:
            answers[id] = await app.schedule("note", id=id)

        async with anyio.create_task_group() as callers:
            for id in "abc":
                callers.start_soon(caller, id)
        for id in "abc":
            assert answers[id].created
            found = await app.get(id)
            assert (found.meta.guid, found.meta.revision) == (answers[id].guid, 1)


async def test_an_outcome_that_stays_unknown_is_reported_as_such(database_url):
    app = App(database_url, policy=SchedulerPolicy(outcome_patience=timedelta(0)))
    await app.init(shards=2)
    async with app:
        Failing(app, OutcomeUnknown("lost"), DatabaseError("refused"))
        with pytest.raises(OutcomeUnknown):
            await app.schedule("note", id="a")


async def test_a_named_request_without_an_id_is_one_action(app):
    first = await app.schedule("note", request_id="r")
    again = await app.schedule("note", request_id="r")
    assert (first.changed, again.changed) == (True, False)
    assert (again.id, again.guid) == (first.id, first.guid)
    other = await app.schedule("note", request_id="other")
    assert other.id != first.id
    assert len(await app.list()) == 2


async def test_twins_of_a_named_request_at_the_same_time_are_one_action(app):
    answers: list[Scheduled] = []

    async def caller() -> None:
        answers.append(await app.schedule("note", request_id="r"))

    async with anyio.create_task_group() as callers:
        for _ in range(3):
            callers.start_soon(caller)
    assert sorted(answer.changed for answer in answers) == [False, False, True]
    many = await app.schedule_many([call("note", request_id=name) for name in ("r", "s", "s", "s", "t")])
    assert (many.total, many.created, many.kept) == (5, 2, 3)
    assert len(await app.list()) == 3


async def test_the_name_of_a_request_belongs_to_its_operation_and_its_action(app):
    for id in "ab":
        assert (await app.schedule("note", id=id, delay=HOUR, request_id="x")).changed
    guid = (await app.get("a")).meta.guid
    assert (await app.schedule("note", id="a", delay=HOUR, request_id="x", expected_guid=guid)).changed
    for change in (app.reschedule, app.run_now, app.cancel):
        assert (await change("a", request_id="x")).changed
    for change in (app.run_now, app.cancel):
        assert not (await change("a", request_id="x")).changed
    assert (await app.get("a")).status.state is State.CANCELLED
    assert (await app.get("b")).status.state is State.LIVE


@pytest.mark.parametrize("operation", ["replace", "reschedule", "run_now", "cancel"])
async def test_a_refused_request_can_be_corrected_and_sent_under_the_same_name(app, operation):
    async def send(expected_guid: UUID) -> Scheduled:
        if operation == "replace":
            return await app.schedule("note", "new", id="n", request_id="r", expected_guid=expected_guid)
        return await getattr(app, operation)("n", request_id="r", expected_guid=expected_guid)

    with pytest.raises(ActionNotFound):
        await send(uuid4())
    guid = (await app.schedule("note", "old", id="n", delay=HOUR)).guid
    with pytest.raises(GuidMismatch):
        await send(uuid4())
    changed = await send(guid)
    assert changed.changed
    assert (await app.get("n")).meta.guid == changed.guid != guid


async def test_a_finished_action_that_could_not_be_moved_can_be_once_it_lives_again(app):
    await app.schedule("note", id="n")
    await app.cancel("n")
    with pytest.raises(ActionFinished):
        await app.reschedule("n", delay=HOUR, request_id="r")
    await app.run_now("n")
    assert (await app.reschedule("n", delay=HOUR, request_id="r")).changed
    assert not (await app.reschedule("n", delay=HOUR, request_id="r")).changed


async def test_a_batch_of_new_actions_is_written_as_a_whole_or_not_at_all(app):
    await app.schedule("note", "old", id="b")
    calls = [call("note", "new", id=id, request_id=f"r{id}") for id in "abc"]
    with pytest.raises(ActionExists, match="'b'"):
        await app.schedule_many(calls, exists="error")
    assert [action.id for action in await app.list()] == ["b"]
    many = await app.schedule_many([calls[0], calls[2]], exists="error")
    assert (many.total, many.created) == (2, 2)
    assert (await app.schedule_many([call("note", id="b"), call("note", id="d")], exists="keep")).created == 1


async def test_a_single_call_that_was_refused_leaves_its_name_unused(app):
    await app.schedule("note", "old", id="a")
    with pytest.raises(ActionExists):
        await app.schedule("note", "new", id="a", exists="error", request_id="r")
    assert (await app.schedule("note", "new", id="a", request_id="r")).changed


async def test_new_actions_whose_answer_was_lost_are_not_taken_for_somebody_elses(database_url):
    app = App(database_url)
    await app.init(shards=2)
    async with app:
        Failing(app, OutcomeUnknown("lost"))
        many = await app.schedule_many([call("note", id=id) for id in "abc"], exists="error")
        assert (many.total, many.created) == (3, 3)


async def test_a_batch_of_repetitions_asks_for_the_time_once(app, clock):
    asked: list[str] = []
    now = app.store.transitions.now

    def counted():
        asked.append("now")
        return now()

    app.store.transitions.now = counted
    calls = [call("note", id=f"n{n}", repeat=every(HOUR)) for n in range(50)]
    calls.append(call("note", id="later", repeat=every(HOUR), delay=HOUR))
    calls.append(call("note", id="at", repeat=every(HOUR), at=clock.now() + 2 * HOUR))
    assert (await app.schedule_many(calls)).created == 52
    assert len(asked) <= 2, "on SQLite a conversation that began by reading is begun again to write"
    begins = {action.id: action.status.scheduled_at - clock.now() for action in await app.list()}
    assert (begins["n0"], begins["later"], begins["at"]) == (timedelta(0), HOUR, 2 * HOUR)


async def test_one_of_many_that_is_locked_keeps_none_of_the_others(postgres_dsn, clock, engine):
    policy = SchedulerPolicy(lock_timeout=timedelta(milliseconds=10), lock_patience=timedelta(milliseconds=50))
    app = App(postgres_dsn, clock=clock, policy=policy)
    await app.init(shards=2)
    ids, tally = [f"a{number}" for number in range(10)], Tally("cancel")
    async with app, engine.begin() as connection:
        await app.schedule_many(call("note", id=id, delay=HOUR) for id in ids)
        await app.reschedule("a3", delay=HOUR, connection=connection)
        with anyio.fail_after(20):
            await bulk.change(app, Selection(ids=ids), tally, lambda done: None)
    assert (tally.matched, tally.changed, tally.skipped) == (10, 9, 1)
