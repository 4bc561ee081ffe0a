"""Our statements run in READ COMMITTED, whatever an operator chose as the default of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from matrixsched import App, State
from matrixsched.store.opening import open_store
from matrixsched.store.statements import statement
from matrixsched.store.transition import Ask, Conversation, Transition
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

LEVELS = ["read committed", "repeatable read", "serializable"]


@pytest.fixture(params=LEVELS)
def strict_dsn(request: pytest.FixtureRequest, postgres_dsn: str) -> str:
    """A database whose transactions are as strict as an operator wishes."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
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
    store = open_store(f"{strict_dsn}?prepared_statements=off&listen=off")
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
