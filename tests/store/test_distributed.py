"""Installations in distributed form: how they are made and recognised, and what is other than usual in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.distributed import SHARDS, a_store, put
from support.drivers import connect_psycopg
from support.scene import LEASE, Scene, done

from matrixsched import App, State, call
from matrixsched.clock import ManualClock
from matrixsched.errors import ActionExists, DistributedUnsupported, FormMismatch, SchemaMissing
from matrixsched.rules.action import EVENT
from matrixsched.rules.lanes import Lane
from matrixsched.store.opening import open_store
from matrixsched.store.postgresql.connection import PLANNING
from matrixsched.store.postgresql.distributed.making import SHARDED, distributing
from matrixsched.store.postgresql.distributed.transitions import as_tried
from matrixsched.store.postgresql.forms import EitherForm
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.store import Store
from matrixsched.store.transition import Ask, Conversation, Transaction, Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Acquired, Answer

pytestmark = pytest.mark.anyio

TABLES = "select relname from pg_class where relnamespace = 'matrixsched'::regnamespace"
KEYS = """
select t.relname, pg_get_constraintdef(k.oid)
  from pg_constraint k join pg_class t on t.oid = k.conrelid
 where t.relnamespace = 'matrixsched'::regnamespace and k.contype in ('p', 'u')
"""


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with connect_psycopg(dsn) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture(params=["by the clock", "by the database"])
async def store(
    request: pytest.FixtureRequest, postgres_dsn: str, clock: ManualClock, anyio_backend: str
) -> AsyncIterator[Store]:
    """Of an installation in distributed form, opened after it was made. The database's own time is asked first."""
    async with a_store(postgres_dsn, clock if request.param == "by the clock" else None) as store:
        yield store


# Making one.


async def test_init_makes_it_once_and_whoever_opens_it_recognises_it(postgres_dsn: str, anyio_backend: str):
    app = App(postgres_dsn)
    assert len(await app.init(shards=SHARDS, distributed=True)) > 0
    assert await app.init(shards=SHARDS, distributed=True) == []
    assert await app.init() == []
    for one in (app, App(postgres_dsn)):
        async with one:
            assert (await one.store.run(one.store.transitions.installation())).is_distributed
            assert (await one.schedule("anything", id="a")).id == "a"
    assert rows(postgres_dsn, "select distributed, oldest_library from matrixsched.installation") == [(True, 9)]
    assert [found for (found,) in rows(postgres_dsn, "select count(*) from matrixsched.action_requests")] == [2]
    assert rows(postgres_dsn, "select count(*) from matrixsched.requests") == [(0,)]


@pytest.mark.parametrize("distributed", [True, False])
async def test_an_installation_keeps_its_form(postgres_dsn: str, distributed: bool, anyio_backend: str):
    app = App(postgres_dsn)
    await app.init(shards=SHARDS, distributed=distributed)
    before = rows(postgres_dsn, KEYS)
    with pytest.raises(FormMismatch, match="nothing was changed.*fixed at init") as refused:
        await app.init(shards=SHARDS, distributed=not distributed)
    assert refused.value.is_distributed is distributed
    assert sorted(rows(postgres_dsn, KEYS)) == sorted(before)
    other = App(postgres_dsn, installation="other")
    await other.init(shards=2, distributed=not distributed)
    async with app, other:
        for one in (app, other):
            assert (await one.schedule("anything", id="a")).created


async def test_a_program_that_makes_its_installation_at_each_start_takes_it_as_it_is(
    postgres_dsn: str, anyio_backend: str
):
    await App(postgres_dsn).init(shards=SHARDS, distributed=True)
    app = App(postgres_dsn)
    assert await app.init() == []
    async with app:
        await app.schedule("anything", id="a", request_id="once")
    assert rows(postgres_dsn, "select count(*) from matrixsched.action_requests") == [(2,)]


@pytest.mark.parametrize("distributed", [True, False])
async def test_a_store_that_is_opened_again_reads_the_form_anew(
    postgres_dsn: str, distributed: bool, anyio_backend: str
):
    store = open_store(postgres_dsn)
    for form in (distributed, not distributed):
        await store.open()
        await store.upgrade(SHARDS, distributed=form)
        assert (await store.run(store.transitions.installation())).is_distributed is form
        await store.drop()
        await store.close()


async def test_before_there_is_one_whoever_asks_is_told_so_and_the_next_reads_its_form(
    postgres_dsn: str, anyio_backend: str
):
    store = open_store(postgres_dsn)
    await store.open()
    with pytest.raises(SchemaMissing):
        await store.run(store.transitions.now())
    await App(postgres_dsn).init(shards=SHARDS, distributed=True)
    asked: list[str] = []
    rows: Any = None
    conversation = store.transitions.backlog(count_max=1).begin()

    async def answer(ask: Ask) -> Any:
        asked.append(ask.statement.name)

        def once() -> Conversation[Any]:
            return (yield ask)

        return await store.run(Transition("step", once))

    with suppress(StopIteration):
        while True:
            rows = await answer(conversation.send(rows))
    assert asked == ["installation", "now", "backlog.look"]  # and nowhere is anything
    await store.close()


def test_every_transition_is_passed_on():
    told = {name for name in dir(PostgresTransitions) if not name.startswith("_")}
    assert told - {name for name in dir(Transitions) if not name.startswith("_")} == {"asking_now"}
    assert told - {"asking_now"} <= set(vars(EitherForm))


@pytest.mark.direct("a session keeps how it plans")
@pytest.mark.parametrize("distributed", [True, False])
async def test_plans_are_made_for_any_parameters_only_where_one_node_plans(
    postgres_dsn: str, distributed: bool, anyio_backend: str
):
    await App(postgres_dsn).init(shards=SHARDS, distributed=distributed)
    store = PostgresStore(postgres_dsn, "default")
    await store.open()
    await store.run(store.transitions.installation())
    (session,) = store._sessions
    found = {name: await session.fetchval("select current_setting($1)", name) for name in PLANNING}
    await store.close()
    assert found == PLANNING | ({"plan_cache_mode": "auto"} if distributed else {})


async def test_sqlite_has_no_such_form(tmp_path: Path, anyio_backend: str):
    app = App(f"sqlite:///{tmp_path}/test.db")
    with pytest.raises(DistributedUnsupported, match="nothing was changed.*Leave --distributed"):
        await app.init(distributed=True)
    with pytest.raises(SchemaMissing):
        await app.open()
    await app.init()
    with pytest.raises(DistributedUnsupported):
        await app.init(distributed=True)


async def test_every_key_of_a_table_that_is_spread_contains_the_shard(store: Store, postgres_dsn: str):
    tables = {table for (table,) in rows(postgres_dsn, TABLES)}
    assert tables.issuperset(SHARDED)
    keys = [(table, key) for table, key in rows(postgres_dsn, KEYS) if table in SHARDED]
    assert len(keys) > len(SHARDED)
    assert [key for key in keys if "(shard_id" not in key[1]] == []
    unique = "select indpred is null from pg_index where indexrelid = 'matrixsched.shard_locks_guid'::regclass"
    assert rows(postgres_dsn, unique) == [(True,)]


def test_with_citus_the_tables_are_spread_together_by_shard_and_limits_are_copied():
    plain, spread = distributing("second", on_citus=False), distributing("second", on_citus=True)
    assert spread[: len(plain)] == plain
    assert all("matrixsched_second." in text for text in spread)
    calls = spread[len(plain) :]
    prefix = "matrixsched_second."
    assert calls[0] == f"select create_distributed_table('{prefix}shard_locks', 'shard_id', colocate_with => 'none')"
    together = f"colocate_with => '{prefix}shard_locks')"
    assert calls[1:-1] == [
        f"select create_distributed_table('{prefix}{table}', 'shard_id', {together}" for table in SHARDED[1:]
    ]
    assert calls[-1] == f"select create_reference_table('{prefix}limits')"


# Taking a shard in two steps.


class Halting:
    """A worker that asks for a shard and can be kept from taking what it found."""

    def __init__(self, store: Store, sync_guid: UUID | None = None) -> None:
        self._store = store
        self.sync_guid = sync_guid or uuid4()
        asked = store.transitions.acquire_shard(sync_guid=self.sync_guid, holder="w", lease=LEASE, lanes=())
        self._conversation = asked.begin()
        self._ask = next(self._conversation)
        self._answer: Acquired | None = None

    async def look(self) -> None:
        """Go on until it is about to take the first shard it found."""
        while self._ask.statement.name != "acquire_shard.take":
            await self.step()

    async def step(self) -> None:
        ask = self._ask

        def asked() -> Conversation[Any]:
            return (yield ask)

        rows = await self._store.run(Transition("step", asked))
        try:
            self._ask = self._conversation.send(rows)
        except StopIteration as end:
            self._answer = end.value

    async def take(self) -> tuple[Acquired, list[int]]:
        """What it gets in the end, and the shards that it tried."""
        tried = []
        while self._answer is None:
            if self._ask.statement.name == "acquire_shard.take":
                tried.append(self._ask.parameters["shard_id"])
            await self.step()
        return self._answer, tried


@pytest.fixture
def scene(store: Store, clock: ManualClock) -> Scene:
    return Scene(store, clock)


async def test_of_two_that_found_the_same_shard_one_gets_it_and_the_other_rests(store: Store, scene: Scene):
    await put(scene, 2)
    first, second = Halting(store), Halting(store)
    await first.look()
    await second.look()
    (won, tried), (lost, tried_too) = await first.take(), await second.take()
    assert (won.shard, tried) == (2, [2])
    assert (lost.shard, tried_too) == (None, [2])
    assert lost.next_due_at is not None
    assert lost.now < lost.next_due_at <= lost.now + timedelta(milliseconds=10)
    assert won.incoming


async def test_of_two_that_found_the_same_shards_each_gets_another_one(store: Store, scene: Scene):
    await put(scene, 1, 3)
    first, second = Halting(store), Halting(store)
    await first.look()
    await second.look()
    (won, tried), (other, tried_too) = await first.take(), await second.take()
    assert (won.shard, tried) == (1, [1])
    assert (other.shard, tried_too) == (3, [1, 3])


async def test_those_that_found_the_same_shards_try_the_first_and_then_each_another_one(store: Store, scene: Scene):
    await put(scene, 0, 1, 2, 3)
    first, *others = [Halting(store, UUID(int=lot)) for lot in range(6)]
    for one in (first, *others):
        await one.look()
    assert (await first.take())[1] == [0]
    tried = [(await other.take())[1] for other in others]
    assert {shards[0] for shards in tried} == {0}
    assert {shards[1] for shards in tried} == {1, 2, 3}


def test_after_the_first_the_lot_decides_among_equals_only():
    shards, ranks = [7, 5, 3, 1, 4, 2], [1, 1, 1, 1, 2, 2]
    orders = [as_tried(shards, ranks, UUID(int=lot)) for lot in range(50)]
    assert {(order[0], *sorted(order[1:4])) for order in orders} == {(7, 1, 3, 5)}
    assert {tuple(order[4:]) for order in orders} == {(4, 2), (2, 4)}
    assert {tuple(order[1:4]) for order in orders} == set(permutations((5, 3, 1)))
    assert as_tried([], [], UUID(int=1)) == []


async def test_one_with_an_event_is_tried_before_those_without(store: Store, scene: Scene):
    await put(scene, 0, 1)
    for shard in (2, 3):
        await scene.schedule("event", shard=shard, lane=EVENT)
    first, *others = [Halting(store, UUID(int=lot)) for lot in range(6)]
    for one in (first, *others):
        await one.look()
    await first.take()
    assert [(await other.take())[1][:2] for other in others] == [[2, 3]] * 5


async def test_a_shard_whose_work_was_done_meanwhile_is_not_taken(store: Store, scene: Scene):
    await put(scene, 2)
    late = Halting(store)
    await late.look()
    (attempt,) = await scene.sync()
    assert attempt.claim.shard == 2
    answer, tried = await late.take()
    assert (answer.shard, tried) == (None, [2])


# What is about several shards.


async def test_actions_of_many_shards_are_written_together(postgres_dsn: str, anyio_backend: str):
    app = App(postgres_dsn)
    await app.init(shards=SHARDS, distributed=True)
    calls = [call("work", id=f"id{number}") for number in range(40)]
    async with app:
        assert (await app.schedule_many(calls[1:])).created == 39
        places = "select shard_id, xmin from matrixsched.incoming_queue"
        shards, transactions = (set(found) for found in zip(*rows(postgres_dsn, places), strict=True))
        assert (shards, len(transactions)) == (set(range(SHARDS)), 1)
        with pytest.raises(ActionExists):
            await app.schedule_many(calls, exists="error")
        assert (await app.schedule_many(calls, exists="keep")).created == 1


def noting(transition: Transition[Any], asked: list[Ask]) -> Transition[Any]:
    """The same; what it asks is noted."""

    def noted() -> Conversation[Any]:
        conversation, rows = transition.begin(), None
        while True:
            try:
                asked.append(ask := conversation.send(rows))
            except StopIteration as end:
                return end.value
            rows = yield ask

    return Transition(transition.name, noted)


async def test_what_is_due_is_counted_in_one_shard_after_the_other_up_to_what_is_left(scene: Scene):
    for shard in range(SHARDS):
        await scene.put_in_processing(f"first of {shard}", f"second of {shard}", shard=shard)
    await scene.schedule("new", shard=3)
    asked: list[Ask] = []
    found = await scene.run(noting(scene.do.backlog(count_max=5), asked))
    assert found.due == 5
    of_shards = [ask.parameters for ask in asked if ask.statement.name == "backlog.count"]
    assert [(one["shard_id"], one["due_max"]) for one in of_shards] == [(0, 5), (1, 3), (2, 1), (3, 0)]
    assert (await scene.run(scene.do.backlog(count_max=50))).due == 9


async def test_lanes_of_gates_are_counted_in_one_shard_after_the_other_until_each_has_its_share(scene: Scene):
    lanes = [Lane(handler="greet", key=key).name for key in ("long", "short")]
    for shard in range(SHARDS):
        await scene.put_in_processing(f"long {shard}", f"more {shard}", shard=shard, lane=lanes[0])
    await scene.put_in_processing("short", shard=1, lane=lanes[1])
    await scene.run(scene.do.relist_lanes(every=timedelta(0)))
    asked: list[Ask] = []
    found = await scene.run(noting(scene.do.gate_report(lanes_max=9, count_max=6), asked))
    assert sum(found.held.values()) == 3 + 1
    of_shards = [ask.parameters for ask in asked if ask.statement.name == "gate_report.lanes"]
    left = [dict(zip(one["lanes"], one["mosts"], strict=True)) for one in of_shards]
    assert left == [dict.fromkeys(lanes, 3), dict(zip(lanes, (1, 3), strict=True)), {lanes[1]: 2}, {lanes[1]: 2}]


async def test_what_is_parked_is_told_once_for_all_shards(scene: Scene):
    for shard in range(SHARDS):
        await scene.schedule(f"unknown {shard}", shard=shard, handler="unknown")
        await scene.sync()
        scene.clock.advance(timedelta(minutes=1))
    (parked,) = await scene.run(scene.do.parked(count_max=9))
    assert (parked.handler, parked.count) == ("unknown", SHARDS)
    assert parked.oldest_due_at == min(row["scheduled_at"] for row in await scene.table("processing_queue"))


async def test_outcomes_of_many_shards_are_recorded_in_one_transaction(scene: Scene):
    await put(scene, 0, 1, 2, 3)
    attempts = []
    while found := await scene.sync():
        attempts += found
    assert [attempt.claim.shard for attempt in attempts] == [0, 1, 2, 3]
    ended = [done(attempt) for attempt in attempts]
    assert isinstance(scene.do.record(ended, history_max=5), Transaction)
    assert not isinstance(scene.do.record(ended[:1], history_max=5), Transaction)
    assert await scene.record(*ended) == [Answer.RECORDED] * 4
    assert await scene.record(*ended) == [Answer.LOST] * 4


async def test_a_request_is_noted_in_the_shard_and_a_twin_does_nothing(scene: Scene):
    batch = [scene.new(f"in {shard}", shard=shard) for shard in (0, 1)]
    request = scene.guid()
    assert len(await scene.send(batch, request=request)) == 2
    assert await scene.send(batch, request=request) == []
    noted = await scene.table("action_requests")
    assert [(row["shard_id"], row["request_guid"]) for row in noted] == [(0, request), (1, request)]
    assert await scene.run(scene.do.carried_out([request])) == {request}


async def test_a_change_that_was_called_off_in_its_shard_does_nothing_when_it_arrives(scene: Scene):
    await scene.schedule(shard=3)
    change = scene.change(shard=3)
    await scene.run(scene.do.call_off(3, change.guid))
    assert await scene.run(scene.do.cancel(change)) is None
    assert await scene.run(scene.do.carried_out([change.guid])) == set()
    assert (await scene.action(shard=3)).status.state is State.LIVE


# Time.


async def test_the_time_is_asked_once_and_first_and_given_to_each_statement(postgres_dsn: str, anyio_backend: str):
    await App(postgres_dsn).init(shards=SHARDS, distributed=True)
    store = open_store(postgres_dsn)
    await store.open()
    asked: list[Ask] = []

    def noted(conversation: Conversation[Any]) -> Conversation[Any]:
        rows: Any = None
        with suppress(StopIteration):
            while True:
                asked.append(conversation.send(rows))
                rows = yield asked[-1]

    acquiring = store.transitions.acquire_shard(sync_guid=uuid4(), holder="w", lease=LEASE, lanes=())
    await store.run(Transition("asked", lambda: noted(acquiring.begin())))
    names = [ask.statement.name for ask in asked]
    assert names == ["now", "acquire_shard.gates", "acquire_shard.look", "acquire_shard.rest"]
    (given,) = {ask.parameters["now"] for ask in asked[1:]}
    assert given is not None
    await store.close()
