"""What is about several shards fails in the middle: it is written in all of them or in none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from support.distributed import SHARDS, a_connection, a_store, held, put
from support.scene import Scene

from matrixsched import App, State, call
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import DatabaseBusy, OutcomeUnknown
from matrixsched.store.statements import statement
from matrixsched.store.transition import Ask, Conversation, Transition
from matrixsched.testing.clock import HastyClock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene(postgres_dsn: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Scene]:
    async with a_store(postgres_dsn, clock) as store:
        yield Scene(store, clock)


async def everything(scene: Scene) -> dict[str, list[dict[str, Any]]]:
    return {**await scene.contents(), "action_requests": await scene.table("action_requests")}


async def test_a_batch_that_waits_too_long_in_one_shard_is_written_in_none(scene: Scene, postgres_dsn: str):
    await put(scene, 2)
    batch, request = [scene.new(f"in {shard}", shard=shard) for shard in range(SHARDS)], scene.guid()
    writing = scene.do.schedule(batch, request, replace=True, lock_timeout=timedelta(milliseconds=20), tell=False)
    before = await everything(scene)
    async with held(postgres_dsn, "select from matrixsched.scheduled_actions where shard_id = 2"):
        with pytest.raises(DatabaseBusy):
            await scene.run(writing)
    assert await everything(scene) == before
    assert len(await scene.run(writing)) == SHARDS
    assert await scene.run(writing) == []


@pytest.mark.parametrize("lost", ["before it is sent", "in the middle", "after its commit"])
async def test_a_batch_in_many_shards_whose_answer_is_lost_is_written_once(
    postgres_dsn: str, clock: ManualClock, lost: str, anyio_backend: str
):
    app = App(postgres_dsn, clock=HastyClock(clock), chance=SeededChance(1))
    await app.init(shards=SHARDS, distributed=True)
    run, struck = app.store.run, list[str]()

    async def losing(transition: Transition[Any]) -> Any:
        if struck or transition.name != "schedule":
            return await run(transition)
        struck.append(lost)
        if lost == "in the middle":
            return await run(replace(transition, begin=lambda: broken_before(transition.begin(), shard=2)))
        if lost == "after its commit":
            await run(transition)
        raise OutcomeUnknown("lost")

    app.store.run = losing  # type: ignore[method-assign]
    async with app:
        many = await app.schedule_many([call("work", id=f"id{number}") for number in range(40)])
    assert (struck, many.created, many.kept) == ([lost], 40, 0)
    async with a_connection(postgres_dsn) as connection:
        found = await connection.fetchrow("select count(*), count(distinct xmin::text) from matrixsched.incoming_queue")
    assert tuple(found) == (40, 1)


DYING = statement("postgresql", "default", "dying", "select pg_terminate_backend(pg_backend_pid())")


def broken_before(conversation: Conversation[Any], *, shard: int) -> Conversation[Any]:
    """The connection breaks before anything is asked of this shard."""
    ask = next(conversation)
    while ask.parameters.get("shard_id") != shard:
        ask = conversation.send((yield ask))
    yield Ask(DYING, {})
    raise AssertionError("the connection is still there")


async def test_of_what_a_caller_rolls_back_to_a_savepoint_nothing_stays_in_any_shard(
    postgres_dsn: str, anyio_backend: str
):
    app = App(postgres_dsn)
    await app.init(shards=SHARDS, distributed=True)
    ids = [f"id{number}" for number in range(40)]
    async with app, a_connection(postgres_dsn) as connection:
        await app.schedule_many([call("work", id=id) for id in ids])
        guids = {id: (await app.get(id)).meta.guid for id in ids}
        again = [call("work", id=id, request_id=f"again {id}") for id in ids]
        somebody = held(postgres_dsn, "select from matrixsched.scheduled_actions where shard_id = 2")
        async with somebody, connection.transaction():
            await connection.execute("set local lock_timeout = '20ms'")
            await app.schedule("work", id="before", connection=connection)
            with pytest.raises(asyncpg.LockNotAvailableError):
                async with connection.transaction():
                    await app.schedule_many(again, connection=connection)
            await app.schedule("work", id="after", connection=connection)
        assert {id: (await app.get(id)).meta.guid for id in ids} == guids
        assert [(await app.get(id)).status.state for id in ("before", "after")] == [State.LIVE] * 2
        assert (await app.schedule_many(again)).replaced == len(ids)


REFUSING_ONE = """
create sequence changes;
create function refuse() returns trigger language plpgsql as $$ begin
    if nextval('changes') = 2 then
        raise exception 'could not serialize access' using errcode = '40001';
    end if;
    return new;
end $$;
create trigger refusing before update on matrixsched.scheduled_actions for each row execute function refuse();
"""


async def test_what_was_done_in_some_shards_counts_when_another_is_refused_once(scene: Scene, postgres_dsn: str):
    for shard in range(SHARDS):
        await scene.schedule(f"in {shard}", shard=shard, template="promo")
    async with a_connection(postgres_dsn) as connection:
        await connection.execute(REFUSING_ONE)
    stopped = await scene.run(
        scene.do.cancel_template_batch("promo", guids=[uuid4() for _ in range(9)], after=(-1, ""))
    )
    assert (stopped.cancelled, stopped.after) == (SHARDS, None)
    actions = await scene.table("scheduled_actions")
    assert {row["state"] for row in actions} == {State.CANCELLED}
    assert len({row["action_guid"] for row in actions}) == SHARDS
