"""The hot statements read what they need and no more, however much waits for later."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import anyio
import asyncpg
import psycopg
import pytest
from support.interleaving import HANDLER, LEASE, an_action
from support.plans import BIG_TABLES, Plan, explain, filled_sqlite, first_ask, prepare, sqlite_plan
from support.postgres import PostgresServer

from matrixsched.clock import ManualClock
from matrixsched.rules.action import EVENT, UNGATED, Attempt, Claim, Outcome, State, Terms, parked_lane, suspect_lane
from matrixsched.rules.outcome import Verdict
from matrixsched.store.chores import TIDY
from matrixsched.store.looking import Place
from matrixsched.store.postgresql.connection import PLANNING, Connection
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.statements import Statement, load, statement
from matrixsched.store.stock import BEGINNING
from matrixsched.store.transition import Ask, Conversation, Transition
from matrixsched.store.values import ActionFilter, Change, Ended, Holding, Seen, SweepPosition, TidyPosition

pytestmark = [
    pytest.mark.undistributed("its plans are of the statements in sql/postgresql/"),
    pytest.mark.direct("plans are asked for in a session of its own"),
]

SHARDS = 4
LIMIT = 50
CLOCK = ManualClock()
NOW = CLOCK.now()
SYNC = UUID(int=1)
DO = PostgresTransitions("default", clock=CLOCK)

# In every shard 25,000 actions of the future, 500 that are due, 1,000 expired ones of a handler that we do not know and
# 5,000 finished ones; in shard 0, which is ours, also 4,000 new ones and 200 attempts under way.
FILL = """
create function pg_temp.fill(prefix text, count integer, state text, at interval) returns void language sql as $$
    insert into matrixsched.scheduled_actions
           (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, state,
            scheduled_at, tick, tick_at, created_at, updated_at, finished_at)
    select n % 4, prefix || n, md5(prefix || n)::uuid, 1, 2, 'greet', 'null', '{}', '', 0, state,
           now.now + at + n * interval '1 ms', 0, now.now, now.now, now.now,
           case when state <> 'live' then now.now - n * interval '1 min' end
      from generate_series(0, count - 1) as n, (select timestamptz '2030-01-01 00:00:00+00') as now (now)
$$;
create function pg_temp.queue(prefix text, lane text, claimed_by uuid) returns void language sql as $$
    insert into matrixsched.processing_queue
           (shard_id, action_id, action_guid, lane, scheduled_at, expires_at, attempt, interrupted, claimed_by,
            claimed_at, added_at, moved_by, moved_at)
    select shard_id, action_id, action_guid, lane, scheduled_at,
           case when prefix in ('future ', 'parked ') then scheduled_at + interval '30 s' end,
           case when claimed_by is null then 0 else 1 end, 0,
           claimed_by, created_at, created_at, '00000000-0000-0000-0000-000000000002', created_at
      from matrixsched.scheduled_actions a where a.action_id like prefix || '%'
$$;
select pg_temp.fill('future ', 100000, 'live', '1 h'), pg_temp.fill('due ', 2000, 'live', '-1 min'),
       pg_temp.fill('parked ', 4000, 'live', '-1 min'), pg_temp.fill('finished ', 20000, 'done', '-1 h'),
       pg_temp.fill('new ', 16000, 'live', '-1 h'), pg_temp.fill('running ', 800, 'live', '5 s');
delete from matrixsched.scheduled_actions
 where shard_id <> 0 and (action_id like 'new %' or action_id like 'running %');
select pg_temp.queue('future ', '', null), pg_temp.queue('due ', '', null),
       pg_temp.queue('parked ', 'handler:other', null),
       pg_temp.queue('running ', '', '00000000-0000-0000-0000-000000000001');
insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane)
select shard_id, created_at, action_id, action_guid, scheduled_at, '' from matrixsched.scheduled_actions
 where action_id like 'new %';
insert into matrixsched.requests
select gen_random_uuid(), timestamptz '2030-01-01 00:00:00+00' - n * interval '1 s' from generate_series(1, 20000) as n;
insert into matrixsched.attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, claimed_by, started_at, ended_at)
select shard_id, action_id, action_guid, n, 0, 'failed', action_guid, created_at, created_at - n * interval '1 min'
  from matrixsched.scheduled_actions, generate_series(1, 5) as n
 where action_id like 'running %' or action_id like 'finished %1';
update matrixsched.shard_locks
   set locked = true, last_lock_guid = '00000000-0000-0000-0000-000000000001',
       last_heartbeat_at = timestamptz '2030-01-01 00:00:00+00'
 where shard_id = 0;
"""


def guid_of(id: str) -> UUID:
    return UUID(hashlib.md5(id.encode(), usedforsecurity=False).hexdigest())


def a_claim(number: int) -> Claim:
    id = f"running {number * SHARDS}"
    return Claim(0, id, guid_of(id), 1, SYNC)


CLAIMS = [a_claim(number) for number in range(LIMIT)]
ENDED = [
    Ended(
        claim,
        Verdict(
            outcome=Outcome.FAILED if number % 2 else Outcome.SUCCEEDED,
            state=State.LIVE if number % 2 else State.DONE,
            tick=0,
            tick_at=NOW,
            delay=timedelta(minutes=1) if number % 2 else None,
        ),
    )
    for number, claim in enumerate(CLAIMS)
]


def an_attempt(claim: Claim) -> Attempt:
    return Attempt(
        claim=claim,
        claimed_at=NOW,
        due_at=NOW,
        handler=HANDLER,
        payload=b"null",
        terms=Terms(),
        version=1,
        priority=0,
        template=None,
        zone=None,
        expires_at=None,
        tick=0,
        tick_at=NOW,
        tick_failures=0,
        interruptions=0,
    )


def a_change(id: str) -> Change:
    return Change(shard=0, id=id, guid=uuid.uuid4(), request_guid=uuid.uuid4(), expected_guid=None, at=NOW)


def as_seen(id: str) -> Change:
    return replace(a_change(id), expected_guid=guid_of(id), seen=Seen(State.LIVE, None))


# Shard 0 is held and beats, so that there is no incoming row for whoever asks; before the due time nothing else is due.
BEFORE_ALL = PostgresTransitions("default", clock=ManualClock(NOW - timedelta(hours=1)))
# Nobody holds shard 0 any more, where thousands are new.
MUCH_LATER = PostgresTransitions("default", clock=ManualClock(NOW + timedelta(hours=2)))
LANES = [lane(f"handler {number}") for number in range(50) for lane in (parked_lane, suspect_lane)]
BATCH = [an_action(NOW, id) for number in range(LIMIT // 2) for id in (f"fresh {number}", f"future {number * SHARDS}")]

HOT: dict[str, Transition[Any]] = {
    "acquire_shard": DO.acquire_shard(sync_guid=uuid.uuid4(), holder="me", lease=LEASE, lanes=LANES),
    "acquire_shard, nothing to do": BEFORE_ALL.acquire_shard(
        sync_guid=uuid.uuid4(), holder="me", lease=timedelta(days=1), lanes=LANES
    ),
    "acquire_shard, much is new": MUCH_LATER.acquire_shard(
        sync_guid=uuid.uuid4(), holder="me", lease=LEASE, lanes=LANES
    ),
    "acquire_shard, only events": MUCH_LATER.acquire_shard(
        sync_guid=uuid.uuid4(), holder="me", lease=LEASE, lanes=LANES, only_events=True
    ),
    "beat_shard": DO.beat_shard(0, SYNC),
    "release_shard": DO.release_shard(0, SYNC),
    "close_fence": DO.close_fence(0, SYNC, uuid.uuid4()),
    "claim": DO.claim(0, SYNC, lane=UNGATED, handlers=[HANDLER], limit=LIMIT, attempt_lease=LEASE),
    "claim, nothing to do": BEFORE_ALL.claim(
        0, SYNC, lane=UNGATED, handlers=[HANDLER], limit=LIMIT, attempt_lease=LEASE
    ),
    "claim, events": DO.claim(0, SYNC, lane=EVENT, handlers=[HANDLER], limit=LIMIT, attempt_lease=LEASE),
    "move": DO.move(0, SYNC, handlers=[HANDLER], move_limit=LIMIT, claim_limit=LIMIT, attempt_lease=LEASE),
    "move, only events": DO.move(
        0, SYNC, handlers=[HANDLER], move_limit=LIMIT, claim_limit=LIMIT, attempt_lease=LEASE, only_events=True
    ),
    "claimed_by": DO.claimed_by(0, SYNC, lanes=[UNGATED], attempt_lease=LEASE),
    "extend": DO.extend([Holding(claim, timedelta(minutes=1)) for claim in CLAIMS], attempt_lease=LEASE),
    "give_back": DO.give_back([an_attempt(claim) for claim in CLAIMS]),
    "record": DO.record(ENDED, history_max=50),
    "schedule": DO.schedule(BATCH, uuid.uuid4(), replace=True, lock_timeout=None, tell=False),
    "replace_expected": DO.replace_expected(an_action(NOW, "future 0"), uuid.uuid4(), guid_of("future 0"), tell=False),
    "reschedule": DO.reschedule(a_change("future 0"), revive=True, tell=False),
    "reschedule, as it was seen": DO.reschedule(as_seen("future 0"), revive=True, tell=False),
    "reschedule, new as it was seen": DO.reschedule(as_seen("new 0"), revive=True, tell=False),
    "cancel": DO.cancel(a_change("future 0")),
    "find": DO.find([(0, f"future {number * SHARDS}") for number in range(LIMIT)]),
    "history": DO.history(0, "running 0"),
    "shards": DO.shards(count_max=LIMIT),
    "stock": DO.stock(BEGINNING, now=NOW, until=NOW + timedelta(days=1), keyed=True, limit=LIMIT),
    "others": DO.others(0, until=NOW + timedelta(days=1), keyed=True, limit=LIMIT),
    "present_window": DO.present_window(),
    "standing": DO.standing(0, "due 0"),
    "gate_report": DO.gate_report(lanes_max=LIMIT, count_max=LIMIT),
    "backlog": DO.backlog(count_max=LIMIT),
    "backlog, nothing due": BEFORE_ALL.backlog(count_max=LIMIT),
    "parked": DO.parked(count_max=LIMIT),
    "pace": DO.pace(NOW - timedelta(hours=1), count_max=LIMIT),
    "prune_actions": DO.prune_actions(State.DONE, keep=timedelta(days=7), limit=LIMIT),
    "prune_actions, another state is older": DO.prune_actions(State.FAILED, keep=timedelta(days=1), limit=LIMIT),
    "count_old": DO.count_old(State.DONE, keep=timedelta(days=7), count_max=LIMIT),
    "count_old, another state is older": DO.count_old(State.FAILED, keep=timedelta(days=1), count_max=LIMIT),
    "prune_requests": DO.prune_requests(keep=timedelta(hours=5), limit=LIMIT),
    "sweep_dead": DO.sweep_dead(SweepPosition(1, "future 500"), limit=LIMIT, reach=LEASE),
    "sweep_history": DO.sweep_history(SweepPosition(0, "finished 1"), limit=LIMIT, history_max=3),
    "expire_waiting": DO.expire_waiting(limit=LIMIT),
    "take_chore": DO.take_chore(TIDY, SYNC, lease=LEASE, every=LEASE),
    "keep_chore": DO.keep_chore(TIDY, SYNC, TidyPosition(), lease=LEASE),
    "leave_chore": DO.leave_chore(TIDY, SYNC),
    "end_chore": DO.end_chore(TIDY, SYNC, TidyPosition()),
}
LOOKS: dict[str, Transition[Any]] = {
    "page_bounded": DO.page_bounded(
        ActionFilter(handler="rare"), after=Place(1, "future 500"), limit=LIMIT, look_max=LIMIT
    ),
    "page_bounded, by prefix": DO.page_bounded(
        ActionFilter(id_prefix="future 5"), after=None, limit=LIMIT, look_max=LIMIT
    ),
    "page_bounded, of a template": DO.page_bounded(
        ActionFilter(template="t", state=State.LIVE), after=None, limit=LIMIT, look_max=LIMIT
    ),
    "page_bounded, finished": DO.page_bounded(
        ActionFilter(state=State.DONE, handler="rare"), after=None, limit=LIMIT, look_max=LIMIT
    ),
}


def ask_of_look(look: Transition[Any]) -> Ask:
    """What it asks once it knows how many shards there are."""
    conversation = look.begin()
    next(conversation)
    return conversation.send([{"shard_count": SHARDS}])


BAD = "a statement that reads everything"
READS_EVERYTHING = statement(
    "postgresql", "default", BAD, "select from matrixsched.processing_queue where moved_at > {now}"
)
ENDED_ACTIONS: dict[str, object] = {
    "shard_ids": [claim.shard for claim in CLAIMS],
    "action_ids": [claim.action_id for claim in CLAIMS],
}
ASKS = {name: first_ask(transition) for name, transition in HOT.items()} | {
    **{name: ask_of_look(look) for name, look in LOOKS.items()},
    "unblock": Ask(load("postgresql", "default")["unblock"], ENDED_ACTIONS),
    BAD: Ask(READS_EVERYTHING, {"now": NOW}),
}
PREPARED = {name: f"statement_{number}" for number, name in enumerate(ASKS)}


async def install(dsn: str) -> None:
    store = PostgresStore(dsn, "default", connections=1)
    await store.open()
    await store.upgrade(SHARDS)
    await store.close()


def plans_of(connection: psycopg.Connection[Any]) -> dict[str, Plan]:
    return {name: explain(connection, PREPARED[name], ask) for name, ask in ASKS.items()}


@pytest.fixture(scope="module")
def plans(postgres_server: PostgresServer) -> Iterator[dict[str, dict[str, Plan]]]:
    """For each way a statement comes to its plan, the plans of all as they were carried out."""
    name = f"plans_{uuid.uuid4().hex}"
    dsn = postgres_server.create_database(name)
    anyio.run(install, dsn)
    found: dict[str, dict[str, Plan]] = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table in sorted(BIG_TABLES):
            connection.execute(f"alter table matrixsched.{table} set (autovacuum_enabled = off)")
        connection.execute("set plan_cache_mode = force_generic_plan")
        for hot, ask in ASKS.items():
            prepare(connection, PREPARED[hot], ask)
        plans_of(connection)
        connection.execute(FILL)
        found["made when the tables were empty"] = plans_of(connection)
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as ours:
            for setting, value in PLANNING.items():
                ours.execute("select set_config(%s, %s, false)", [setting, value])
            for hot, ask in ASKS.items():
                prepare(ours, PREPARED[hot], ask)
            found["ours, never analysed"] = plans_of(ours)
        connection.execute("vacuum analyze")
        found["generic"] = plans_of(connection)
        connection.execute("set plan_cache_mode = force_custom_plan")
        found["custom"] = plans_of(connection)
    yield found
    postgres_server.drop_database(name)


ROWS_READ_MAX = 12 * LIMIT
"""A statement looks at a row of its batch several times (find, lock, judge, write), and at its action and history."""
ROWS_THROWN_AWAY_MAX = 5 * LIMIT
"""Parts of a statement pick theirs from the batch; comparing each row of it with each would be LIMIT times LIMIT."""


@pytest.mark.parametrize("made", ["made when the tables were empty", "ours, never analysed", "generic", "custom"])
@pytest.mark.parametrize("name", [*HOT, *LOOKS, "unblock"])
def test_a_hot_statement_reads_no_more_than_its_batch(plans: dict[str, dict[str, Plan]], name: str, made: str) -> None:
    plan = plans[made][name]
    assert plan.full_scans == []
    assert plan.rows_read <= ROWS_READ_MAX
    assert plan.rows_thrown_away <= ROWS_THROWN_AWAY_MAX


def _reading() -> Conversation[int]:
    """How many rows of the processing queue were read so far."""
    yield Ask(statement("postgresql", "default", "flush", "select pg_stat_force_next_flush()"), {})
    text = (
        "select idx_tup_fetch + seq_tup_read as read from pg_stat_user_tables "
        "where schemaname = 'matrixsched' and relname = 'processing_queue'"
    )
    (row,) = yield Ask(statement("postgresql", "default", "read", text), {})
    return int(row["read"])


@pytest.mark.anyio
@pytest.mark.direct("plans are kept by a session")
@pytest.mark.undistributed("each time is planned for what it asks")
async def test_plans_of_empty_tables_are_made_anew_when_many_rows_come(postgres_dsn: str) -> None:
    await install(postgres_dsn)
    store = PostgresStore(postgres_dsn, "default", connections=1, clock=CLOCK)
    await store.open()
    reading = Transition("reading", _reading)

    async def rows_read_to_record(ended: list[Ended]) -> int:
        before = await store.run(reading)
        await store.run(DO.record(ended, history_max=50))
        return await store.run(reading) - before

    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        ours = connection.execute("select tablename from pg_tables where schemaname = 'matrixsched'").fetchall()
        for (table,) in ours:  # an ANALYZE of any of them that a statement names would have it planned anew
            connection.execute(f"alter table matrixsched.{table} set (autovacuum_enabled = off)")
        connection.execute(FILL)
        connection.execute("delete from matrixsched.processing_queue")
        connection.execute("vacuum analyze matrixsched.processing_queue")
        await rows_read_to_record(ENDED[:1])
        connection.execute("select pg_temp.queue('future ', '', null)")
    read = [await rows_read_to_record(ENDED) for _ in range(2)]
    await store.close()
    assert read[0] > 100_000  # as planned for the empty table
    assert read[1] < ROWS_READ_MAX


@pytest.mark.anyio
@pytest.mark.direct("plans are kept by a session")
async def test_plans_are_made_anew_after_a_while(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn, connection_class=Connection)
    await connection.begin_session(100.0, prepares=True, planning=PLANNING)
    asked: list[str] = []
    with connection.query_logger(lambda record: asked.append(record.query)):
        for now in (101.0, 119.0, 121.0, 122.0):
            await connection.renew_plans(now)
    await connection.close()
    assert asked == ["discard plans"]


@pytest.mark.anyio
@pytest.mark.direct("plans are kept by a session")
async def test_a_session_is_left_as_it_is_where_statements_are_not_prepared(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn, connection_class=Connection, statement_cache_size=0)
    await connection.begin_session(100.0, prepares=False, planning=PLANNING)
    found = {name: await connection.fetchval("select current_setting($1)", name) for name in PLANNING}
    await connection.renew_plans(1000.0)
    await connection.close()
    assert found == {"plan_cache_mode": "auto", "enable_seqscan": "on", "jit": "on"}


@pytest.mark.parametrize("made", ["generic", "custom"])
def test_a_statement_that_reads_everything_would_be_seen(plans: dict[str, dict[str, Plan]], made: str) -> None:
    plan = plans[made][BAD]
    assert plan.full_scans == ["processing_queue"]
    assert plan.rows_read > 100_000
    assert plan.rows_thrown_away > 90_000


# What a look costs that finds nothing, where there are only ungated rows of the future; and with events among them.

FUTURE = """
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select n % 4, lanes.lane || n, md5(lanes.lane || n)::uuid, lanes.lane, now.now + interval '1 day', 0, 0, now.now,
       '00000000-0000-0000-0000-000000000002', now.now
  from generate_series(1, 20000) as n, unnest(array[{lanes}]) as lanes (lane),
       (select timestamptz '2030-01-01 00:00:00+00') as now (now)
"""
IDLE = first_ask(
    DO.acquire_shard(
        sync_guid=uuid.uuid4(),
        holder="me",
        lease=LEASE,
        lanes=LANES,
        gated_handlers=[f"handler {n}" for n in range(50)],
    )
)
ALWAYS = 5
"""Probes that do not depend on the number of shards: is anything before a gate, what is in the shard that was taken."""
PROBES = {
    # Is a row new, ungated and due, in any other lane; when is the next ungated one due, is one in any other lane.
    f"'{UNGATED}'": 5,
    # The heads of the other lanes say all but whether special ones hide behind events.
    f"'{EVENT}'": 6,
    f"'', 'coming', '{EVENT}'": 8,
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("lanes", PROBES)
def test_a_look_that_finds_nothing_probes_each_shard_a_few_times(
    postgres_server: PostgresServer, lanes: str, mode: str
) -> None:
    name = f"idle_{uuid.uuid4().hex}"
    dsn = postgres_server.create_database(name)
    anyio.run(install, dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(FUTURE.format(lanes=lanes).encode())
        connection.execute("vacuum analyze")
        connection.execute(f"set plan_cache_mode = {mode}".encode())
        prepare(connection, "idle", IDLE)
        plan = explain(connection, "idle", IDLE)
    postgres_server.drop_database(name)
    assert sum(node["Actual Loops"] for node in plan.reads()) <= PROBES[lanes] * SHARDS + ALWAYS
    assert plan.rows_read <= 6 * SHARDS


# SQLite.

SQLITE_BIG = {f"matrixsched_{table}" for table in BIG_TABLES}
SQLITE_ALL = ("page", "find_in_installation.others", "inspect.migrations")
"""What operators ask now and then, of everything there is."""
SQLITE_HOT = sorted(name for name in load("sqlite", "default") if name not in SQLITE_ALL)
SQLITE_ORDERED = [name for name in SQLITE_HOT if name.split(".")[0] in ("acquire_shard", "claim", "move")]


@pytest.fixture(scope="module", params=["analysed", "never analysed"])
def sqlite(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """A database with much that is not due."""
    with filled_sqlite(SQLITE_FILL, analysed=request.param == "analysed") as connection:
        yield connection


SQLITE_FILL = """
with recursive n (n) as (select 0 union all select n + 1 from n where n < 19999)
insert into matrixsched_scheduled_actions
       (shard_id, action_id, action_guid, version, revision, handler, payload, terms, lane, priority, state,
        scheduled_at, tick, tick_at, created_at, updated_at, finished_at)
select n % 64, 'action ' || n, 'guid ' || n, 1, 1, 'greet', 'null', '{}', '', 0, iif(n % 5, 'live', 'done'),
       n * 1000000, 0, 0, 0, 0, iif(n % 5, null, n)
  from n;
insert into matrixsched_processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, action_id, action_guid, '', scheduled_at, 0, 0, 0, 'guid', 0
  from matrixsched_scheduled_actions where state = 'live';
insert into matrixsched_incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane)
select shard_id, 0, action_id, action_guid, scheduled_at, '' from matrixsched_scheduled_actions where tick % 3 = 0;
insert into matrixsched_requests (request_guid, created_at)
select action_guid, scheduled_at from matrixsched_scheduled_actions;
insert into matrixsched_attempt_history
       (shard_id, action_id, action_guid, attempt, tick, outcome, claimed_by, started_at, ended_at)
select shard_id, action_id, action_guid, 1, 0, 'failed', 'guid', 0, 0 from matrixsched_scheduled_actions;
with recursive n (n) as (select 0 union all select n + 1 from n where n < 63)
insert into matrixsched_shard_locks (shard_id, last_lock_guid) select n, 'guid ' || n from n;
"""


def sqlite_scans(connection: sqlite3.Connection, statement: Statement) -> list[str]:
    """Where a big table, or an index of one, is read from end to end."""
    names = "|".join(sorted(SQLITE_BIG))
    big = {*SQLITE_BIG, *re.findall(rf"(?:{names})(?: as)? (\w+)", statement.text)}
    steps = [step.split() for step in sqlite_plan(connection, statement)]
    return [" ".join(step) for step in steps if _is_end_to_end(step) and step[1] in big]


def _is_end_to_end(step: list[str]) -> bool:
    """Also a search, as SQLite calls it, for the least value in an index, by no condition (in brackets)."""
    return step[0] == "SCAN" or step[0] == "SEARCH" and not any(word.startswith("(") for word in step)


@pytest.mark.parametrize("name", SQLITE_HOT)
def test_a_statement_on_sqlite_finds_its_rows_by_an_index(sqlite: sqlite3.Connection, name: str) -> None:
    scans = sqlite_scans(sqlite, load("sqlite", "default")[name])
    # The least of all queues is the first entry of the index.
    assert [step for step in scans if step.startswith("SCAN") or name != "count_queues.queues"] == []


@pytest.mark.parametrize("what", ["p.action_id", "min(p.lane)"])
def test_a_full_scan_on_sqlite_would_be_seen(sqlite: sqlite3.Connection, what: str) -> None:
    text = f"select {what} from matrixsched_processing_queue p where p.moved_at > {{now}}"
    assert len(sqlite_scans(sqlite, statement("sqlite", "default", "scan", text))) == 1


@pytest.mark.parametrize("name", SQLITE_ORDERED)
def test_a_hot_statement_on_sqlite_reads_in_the_order_it_needs(sqlite: sqlite3.Connection, name: str) -> None:
    sorts = [step for step in sqlite_plan(sqlite, load("sqlite", "default")[name]) if "TEMP B-TREE" in step]
    # The locks of the shards are few; they are sorted by the time of their last turn.
    assert [step for step in sorts if not name.startswith("acquire_shard.choose")] == []
