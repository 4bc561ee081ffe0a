"""An application is taken off its database and given back as it was."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from uuid import uuid4

import anyio
import pytest
from support.drivers import connect_asyncpg, engine_of_either

from matrixsched import App
from matrixsched.errors import ActionNotFound, AlreadyOpen, BadInput, DatabaseUnavailable, InvalidTime, StageError
from matrixsched.events import AttemptEnded
from matrixsched.testing import stage
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
TEA = {"user_id": 1}


def state(app: App) -> dict[str, object]:
    shown = {name: value for name, value in vars(app).items() if name != "sync"}
    return shown | {"middlewares": list(app.middlewares), "subscribers": dict(app.events._subscribers)}


async def test_afterwards_everything_is_as_it_was(program):
    app, heard = program.app, []
    app.events.subscribe(AttemptEnded, heard.append)
    before = state(app)
    with stage(app) as on:
        app.events.subscribe(AttemptEnded, lambda event: None)

        @app.middleware
        async def around(context, call_next):
            return await call_next()

        await app.schedule("remind", TEA, id="r")
        on.app.sync.schedule("remind", TEA, id="s")
        await on.run_due()
    assert state(app) == before
    assert not app.sync.is_connected
    assert [event.id for event in heard] == ["r", "s"], "who had subscribed before hears of the stage, too"


async def test_afterwards_calls_go_to_its_own_database_again(tmp_path):
    app = App(f"sqlite:///{tmp_path}/production.db")

    @app.action("work")
    async def work() -> None: ...

    await app.init()
    for _ in range(2):
        with stage(app) as on:
            await app.schedule(work, id="w")
            app.sync.schedule(work, id="w2")
            assert len(await on.run_due()) == 2
    async with app:
        with pytest.raises(ActionNotFound):
            await app.get("w")
    with app.sync, pytest.raises(ActionNotFound):
        app.sync.get("w2")


async def test_a_stage_that_has_ended_does_not_touch_the_applications_own_database(tmp_path):
    app = App(f"sqlite:///{tmp_path}/production.db")

    @app.action("work")
    async def work() -> None: ...

    await app.init()
    with stage(app) as on:
        pass
    async with app:
        await app.schedule(work, id="w")
        for journey in (on.run_due, on.run_until_idle, lambda: on.advance(DAY)):
            with pytest.raises(StageError, match="the stage has ended"):
                await journey()
        with pytest.raises(StageError, match="the stage has ended"):
            on.sync.run_due()
        assert (await app.get("w")).status.attempts_started == 0


async def test_also_when_the_test_fails(program):
    before = state(program.app)
    with pytest.raises(ZeroDivisionError), stage(program.app):
        raise ZeroDivisionError
    assert state(program.app) == before


async def test_every_stage_is_fresh(program, place):
    for _ in range(2):
        with stage(program.app, url=place) as on:
            on.assert_not_scheduled()
            await program.app.schedule("remind", TEA, id="r", exists="error")


async def test_a_program_may_open_and_close_its_application_on_stage(on, program):
    await program.app.init()
    async with program.app:
        await program.app.schedule("remind", TEA, id="r", delay=DAY)
    with program.app.sync:
        assert program.app.sync.get("r").id == "r"
    await program.app.close()
    assert len(await on.advance(DAY)) == 1


async def test_a_program_may_leave_its_application_open(program):
    with stage(program.app):
        await program.app.open()
    with stage(program.app) as on:
        on.assert_not_scheduled()


async def test_an_application_that_is_open_is_refused(tmp_path):
    app = App(f"sqlite:///{tmp_path}/production.db")
    await app.init()
    async with app:
        with pytest.raises(
            AlreadyOpen, match="connected to its own database. Enter the stage before `async with app:`"
        ):
            stage(app).__enter__()
    with app.sync, pytest.raises(AlreadyOpen, match="app.sync.close"):
        stage(app).__enter__()
    with stage(app):
        pass


async def test_an_application_is_on_one_stage_at_a_time(program):
    with stage(program.app), pytest.raises(AlreadyOpen):
        stage(program.app).__enter__()


async def test_wrong_arguments_leave_the_application_alone(program):
    before = state(program.app)
    with pytest.raises(InvalidTime, match="at "):
        stage(program.app, at="tomorrow").__enter__()  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="attempts_max"):
        stage(program.app, attempts_max=0).__enter__()
    with pytest.raises(DatabaseUnavailable, match="cannot connect to PostgreSQL at nowhere.invalid"):
        stage(program.app, url="postgresql://nowhere.invalid/test").__enter__()
    assert state(program.app) == before


async def test_a_real_worker_on_stage_waits_for_the_test_to_travel(program):
    with stage(program.app) as on:
        worker = Worker(program.app)
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await worker.running.wait()
            await program.app.schedule("remind", TEA, id="r", delay=DAY)
            for _ in range(3):
                await anyio.wait_all_tasks_blocked()
            assert program.said == []
            assert on.now.day == 1, "nobody but the test moves the clock"
            worker.stop(at_once=True)


# In a database of the test's own.


async def test_the_installation_is_dropped_at_the_end(program, postgres_dsn):
    async def schemas() -> list[str]:
        connection = await connect_asyncpg(postgres_dsn)
        try:
            found = await connection.fetch("select nspname from pg_namespace where nspname like 'matrixsched%'")
        finally:
            await connection.close()
        return [row["nspname"] for row in found]

    with stage(program.app, url=postgres_dsn):
        (schema,) = await schemas()
        assert schema.startswith("matrixsched_stage_")
    assert await schemas() == []


async def test_the_tables_are_dropped_at_the_end_and_nobody_elses(program, tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db"
    await App(url).init()

    def tables() -> set[str]:
        with closing(sqlite3.connect(tmp_path / "shared.db")) as connection:
            return {name for (name,) in connection.execute("select name from sqlite_schema") if "sqlite_" not in name}

    before = tables()
    with stage(program.app, url=url):
        assert len(tables()) == 2 * len(before)
    assert tables() == before


def test_code_that_schedules_in_its_own_transaction(program, database_url):
    engine = engine_of_either(database_url)
    try:
        with stage(program.app, url=database_url) as on:
            with engine.connect() as connection:
                program.app.sync.schedule("remind", TEA, id="kept", connection=connection)
                connection.commit()
                program.app.sync.schedule("remind", TEA, id="rolled back", connection=connection)
                connection.rollback()
            on.assert_scheduled("remind", id="kept")
            on.assert_not_scheduled("remind", id="rolled back")
            assert [ran.id for ran in on.sync.run_due()] == ["kept"]
    finally:
        engine.dispose()


def test_two_stages_in_one_database_do_not_meet(program, database_url):
    other = App("postgresql://nowhere.invalid/x")
    id = uuid4().hex
    with stage(program.app, url=database_url) as one, stage(other, url=database_url) as two:
        program.app.sync.schedule("remind", TEA, id=id)
        one.assert_scheduled(id=id)
        two.assert_not_scheduled(id=id)
