"""Our statements run in READ COMMITTED, whatever an operator chose as the default of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import anyio
import pytest
from support.drivers import connect_psycopg, with_options

from matrixsched import App, Retry, State
from matrixsched.errors import DatabaseBusy
from matrixsched.store.opening import open_store
from matrixsched.store.statements import statement
from matrixsched.store.transition import Ask, Conversation, Transition
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

DEADLINE_S = 30
LEVELS = ["read committed", "repeatable read", "serializable"]


@pytest.fixture(params=LEVELS)
def strict_dsn(request: pytest.FixtureRequest, postgres_dsn: str) -> str:
    """A database whose transactions are as strict as an operator wishes."""
    with connect_psycopg(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            f"do $$ begin execute format('alter database %I set default_transaction_isolation = ''{request.param}''', "
            "current_database()); end $$"
        )
    return postgres_dsn


@pytest.fixture
async def app(strict_dsn: str, anyio_backend: str) -> AsyncIterator[App]:
    app = App(strict_dsn)
    await app.init(shards=2)
    async with app:
        yield app


def isolation() -> Transition[str]:
    show = statement("postgresql", "default", "isolation", "select current_setting('transaction_isolation') as level")

    def asked() -> Conversation[str]:
        (row,) = yield Ask(show, {})
        level: str = row["level"]
        return level

    return Transition("isolation", asked)


async def test_every_transition_runs_in_read_committed(app: App):
    assert await app.store.run(isolation()) == "read committed"
    sibling = app.store.sibling()
    await sibling.open()
    assert await sibling.run(isolation()) == "read committed"
    await sibling.close()


async def test_it_also_holds_without_prepared_statements_as_behind_a_pooler(strict_dsn: str):
    store = open_store(with_options(strict_dsn, prepared_statements="off", listen="off"))
    await store.open()
    assert await store.run(isolation()) == "read committed"
    await store.close()


async def test_what_a_transition_wrote_is_there_and_what_it_refused_is_not(app: App):
    @app.action("work")
    async def work() -> None: ...

    await app.schedule(work, id="a")
    await app.schedule(work, id="b")
    await app.cancel("b")
    assert await Worker(app).run_due() == 1
    assert [(await app.get(id)).status.state for id in "ab"] == [State.DONE, State.CANCELLED]


# Conflicts that show only at COMMIT, as on several nodes: here a deferred trigger finds them. It lets every third
# transaction pass, which a sequence counts, for that is not rolled back.

REFUSING = """
create sequence commits;
create function refuse() returns trigger language plpgsql as $$ begin
    if current_setting('refusing.asked', true) = 'yes' then
        return null;
    end if;
    perform set_config('refusing.asked', 'yes', true);
    if nextval('commits') % 3 <> 0 then
        raise exception 'could not serialize access' using errcode = '{code}';
    end if;
    return null;
end $$;
create constraint trigger refusing after insert or update or delete on matrixsched.{table}
    deferrable initially deferred for each row execute function refuse();
"""


@pytest.mark.parametrize("strict_dsn", ["read committed", "serializable"], indirect=True)
@pytest.mark.parametrize(
    ("table", "code"),
    [
        ("scheduled_actions", "40001"),
        ("scheduled_actions", "40P01"),
        ("incoming_queue", "40001"),
        ("processing_queue", "40001"),
        ("attempt_history", "40001"),
        ("shard_locks", "40001"),
    ],
)
async def test_what_is_refused_at_commit_is_done_again_as_a_whole_and_no_attempt_is_counted(
    app: App, strict_dsn: str, table: str, code: str
):
    ran: list[str] = []

    @app.action("work", retry=Retry(max_attempts=2, first_delay=timedelta(0), jitter=0))
    async def work(name: str) -> None:
        ran.append(name)
        if ran.count(name) == 1:
            raise ValueError(name)

    with connect_psycopg(strict_dsn, autocommit=True) as connection:
        connection.execute(REFUSING.format(table=table, code=code))
    for name in "abc":
        await app.schedule(work, name, id=name)
    await app.reschedule("b", delay=timedelta(0))
    await app.cancel("c")
    await until_done(app, "a", "b")
    assert sorted(ran) == ["a", "a", "b", "b"]
    for id in "ab":
        status = (await app.get(id)).status
        assert (status.state, status.succeeded, status.failed, status.interrupted) == (State.DONE, 1, 1, 0)
    assert (await app.get("c")).status.state is State.CANCELLED


async def test_a_step_of_several_statements_is_done_again_from_the_first(app: App, strict_dsn: str):
    ran: list[int] = []

    @app.action("work")
    async def work(number: int) -> None:
        ran.append(number)

    with connect_psycopg(strict_dsn, autocommit=True) as connection:
        connection.execute(REFUSING.format(table="limits", code="40001"))
    await app.limits.set("global", "1000/s", pool=10)
    for number in range(3):
        await app.schedule(work, number, id=str(number))
    await until_done(app, *"012")
    assert sorted(ran) == [0, 1, 2]


async def until_done(app: App, *ids: str) -> None:
    worker = Worker(app)
    with anyio.fail_after(DEADLINE_S):
        while [(await app.get(id)).status.state for id in ids] != [State.DONE] * len(ids):
            await worker.run_due()


async def test_what_is_always_refused_ends_busy_with_the_code_and_nothing_is_written(app: App, strict_dsn: str):
    with connect_psycopg(strict_dsn, autocommit=True) as connection:
        connection.execute(REFUSING.format(table="scheduled_actions", code="40001").replace("% 3", "% 1000"))
    with pytest.raises(DatabaseBusy, match="40001"):
        await app.schedule("work", id="a")
    assert await app.list() == []
