"""The profile that distributed SQL can run: each statement keeps to one shard and asks nothing of a session.

What does not keep to it is named below, with the reason and with what it takes where rows of several shards lie on
several nodes, as the distributed form has it (`test_distributed_profile.py`). These lists may only become shorter.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from simulation.sql_mutants import mutants
from sqlglot import exp, parse_one
from support.shard_profile import SCHEMA, unbound

from matrixsched.store.statements import Statement, load

POSTGRESQL = Path(__file__).resolve().parents[2] / "schema" / "postgresql"
STATEMENTS = load("postgresql", "default")

# Found where there is work, or under the lease of a chore, or by an operator: in more than one shard.
SEARCH = "finds a shard with work among all: first the candidates without a lock, then a compare-and-set on one row"
PLACE = "deletes rows that it has locked by their place: where a place is one of many nodes, by shard and place"
CHORE = "one worker at a time does it for all shards, under the lease of a chore: shard after shard"
SPENT = "asks whether a lane is empty in all shards before it is forgotten: leave it to `relist_lanes`"
LOOK = "reads what is in all shards, without a lock, and no worker depends on it: a query that fans out"
OPERATOR = "an operator changes something in all shards: shard after shard"
MARKS = "looks at semaphores of any key for those that changed, without a lock: a query that fans out"

SEVERAL_SHARDS: dict[str, dict[str, dict[str, int]]] = {
    SEARCH: {"acquire_shard": {"shard_locks": 5, "processing_queue": 17, "incoming_queue": 5}},
    PLACE: {
        "claim": {"processing_queue": 1},
        "move": {"incoming_queue": 1, "processing_queue": 1},
        "record": {"attempt_history": 1},
        "reschedule": {"incoming_queue": 1, "processing_queue": 1},
    },
    CHORE: {
        "expire_waiting": {"processing_queue": 3, "scheduled_actions": 3, "attempt_history": 1},
        "plan_window.count": {"processing_queue": 1},
        "plan_window.due": {"processing_queue": 2},
        "plan_window.unsettled": {
            "processing_queue": 1,
            "scheduled_actions": 1,
            "incoming_queue": 1,
            "shard_locks": 1,
        },
        "prune_actions": {"scheduled_actions": 2, "attempt_history": 2},
        "relist_lanes": {"processing_queue": 3},
        "sweep_dead": {"processing_queue": 5, "scheduled_actions": 1},
        "sweep_history": {"attempt_history": 3, "scheduled_actions": 1},
    },
    SPENT: {"spend": {"processing_queue": 1}},
    LOOK: {
        "backlog": {"processing_queue": 4, "shard_locks": 2, "incoming_queue": 1},
        "count_old": {"scheduled_actions": 1},
        "count_template": {"scheduled_actions": 1},
        "find_in_installation.locks": {"shard_locks": 1},
        "find_in_installation.others": {
            "scheduled_actions": 1,
            "semaphore_tasks": 3,
            "semaphores": 2,
            "semaphore_changes": 1,
        },
        "find_in_installation.strays": {
            "scheduled_actions": 2,
            "incoming_queue": 2,
            "processing_queue": 2,
            "attempt_history": 2,
        },
        "gate_report.lanes": {"processing_queue": 1},
        "pace": {"scheduled_actions": 1},
        "page": {"processing_queue": 2, "scheduled_actions": 1},
        "page_bounded.by_id": {"scheduled_actions": 1, "shard_locks": 1},
        "page_bounded.finished": {"scheduled_actions": 1},
        "page_bounded.of_template": {"scheduled_actions": 1},
        "parked": {"processing_queue": 3, "shard_locks": 1},
        "semaphores.page": {"semaphores": 1},
        "shards": {"processing_queue": 2, "incoming_queue": 1, "shard_locks": 1},
        "standing": {"shard_locks": 1, "processing_queue": 1},
        "stock": {"scheduled_actions": 1},
    },
    OPERATOR: {
        "cancel_template": {"processing_queue": 4, "scheduled_actions": 2},
        "mend.counters": {"scheduled_actions": 1},
        "mend.extra_lock": {"shard_locks": 1},
        "mend.forgotten": {"attempt_history": 1},
        "mend.lane": {"processing_queue": 1},
        "mend.lease": {"processing_queue": 1},
        "mend.lock_time": {"shard_locks": 1},
        "mend.misplaced": {"incoming_queue": 1, "processing_queue": 1},
        "mend.misplaced_drop": {"incoming_queue": 1, "processing_queue": 1},
        "mend.time": {"processing_queue": 1},
        "mend.twice": {"incoming_queue": 1},
        "mend.unbalanced": {"semaphore_changes": 2, "semaphore_tasks": 2, "semaphores": 1},
        "mend.unwanted": {"incoming_queue": 1, "processing_queue": 1},
    },
    MARKS: {"balance.changed": {"semaphore_changes": 2, "semaphore_tasks": 1}},
}
"""By the reason: the tables that are not bound, and how often each is named so."""

REQUESTS = "notes the request beside what it wrote: the request bears the shard, too"
LIMITS = "reads or spends what the whole installation shares: few rows, copied to every node, or on one"
MIXED = "reads tables of all kinds for an operator: one query for each"
BESIDE_SHARDS = {
    REQUESTS: {"schedule", "replace_expected", "reschedule", "cancel", "enqueue_tasks", "release_tasks", "step_back"},
    LIMITS: {"acquire_shard", "claim", "move", "spend", "relist_lanes"},
    MIXED: {"find_in_installation.others", "gate_report.lanes", "standing"},
}
"""Those that name a table which has no shard, together with one that has."""

INSTALLATION_WIDE = {
    *("installation", "migrations", "chores", "limits", "templates", "held_lanes", "requests", "audit_log"),
    *("quota_settings", "quota_windows", "quota_grants", "workers", "worker_minutes"),
    *("queue_tasks", "queue_dead_letters", "queue_settings", "queue_workers", "known_queues"),
}
"""Tables without a shard. Those of typed queues would go by their queue, but are settled by the ids of tasks alone."""

OF_THE_DOCTOR = {"inspect.server", "inspect.sessions"}
"""They are about sessions."""
SEQUENCES = {"put_tasks": "ids of tasks rise; what is handed out goes by its time, and among equals by the id"}
ALWAYS_TELL = {"wake", "queue_settings.write", "queue_settings.resume", "semaphores.update"}
"""Asked only to tell, or by operators; in all others a channel that is null says that nobody is told."""


def columns_of_tables() -> dict[str, frozenset[str]]:
    found = defaultdict[str, set[str]](set)
    for name in json.loads((POSTGRESQL / "catalogue.json").read_text()):
        kind, _, place = name.partition(" ")
        if kind == "column":
            table, _, column = place.partition(".")
            found[table].add(column)
    return {table: frozenset(columns) for table, columns in found.items() if table != "readable_actions"}


COLUMNS = columns_of_tables()
ACTIONS = {table: "shard_id" for table, columns in COLUMNS.items() if "shard_id" in columns}
SEMAPHORES = {"semaphores": "key", "semaphore_tasks": "semaphore", "semaphore_changes": "semaphore"}
DISTRIBUTED = ACTIONS | SEMAPHORES


def not_bound(text: str) -> dict[str, int]:
    return dict(Counter(unbound(text, DISTRIBUTED, COLUMNS)))


def tables_of(one: Statement) -> set[str]:
    tables = parse_one(one.text, read="postgres").find_all(exp.Table)
    return {table.name for table in tables if table.db == SCHEMA}


def asking(pattern: str) -> set[str]:
    return {name for name, one in STATEMENTS.items() if re.search(pattern, one.text, re.IGNORECASE)}


def test_the_profile_knows_every_table():
    assert set(COLUMNS) == INSTALLATION_WIDE | set(DISTRIBUTED)
    assert all(DISTRIBUTED[table] in COLUMNS[table] for table in DISTRIBUTED)


def test_each_statement_is_bound_to_one_shard_but_for_those_named():
    found = {name: tables for name, one in STATEMENTS.items() if (tables := not_bound(one.text))}
    assert found == {name: tables for named in SEVERAL_SHARDS.values() for name, tables in named.items()}


def test_what_has_a_shard_and_what_has_none_meet_only_where_named():
    mixed = {name for name, one in STATEMENTS.items() if len(groups(tables_of(one))) > 1}
    assert mixed == set().union(*BESIDE_SHARDS.values())


def groups(tables: set[str]) -> set[str]:
    return {"actions" if table in ACTIONS else "semaphores" if table in SEMAPHORES else "none" for table in tables}


OF_WHICH_SHARD = re.compile(r"without (\w+\.)?shard_id = [\w.(: )]*$")
LEAVING_OUT_MIN = {"claim": 8, "move": 8, "record": 8, "extend": 2, "beat_shard": 1, "cancel": 2, "reschedule": 2}


def keeping() -> list[str]:
    """The statements that keep to one shard. Not asked while tests are collected: to read them all takes a second."""
    acting = [name for name, one in STATEMENTS.items() if tables_of(one) & set(ACTIONS)]
    return [name for name in acting if name in SEVERAL_SHARDS[PLACE] or not not_bound(STATEMENTS[name].text)]


def test_a_shard_that_is_left_out_is_noticed():
    """Each predicate that says of which shard, one at a time."""
    found, unnoticed = Counter[str](), list[tuple[str, str]]()
    for name in keeping():
        text = STATEMENTS[name].text
        before = not_bound(text)
        careless = [one for one in mutants(text, "postgresql") if OF_WHICH_SHARD.match(one.what)]
        unnoticed += [(name, one.what) for one in careless if not_bound(one.text) == before]
        found[name] = len(careless)
    assert unnoticed == []
    assert {name: found[name] for name, least in LEAVING_OUT_MIN.items() if found[name] < least} == {}


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("select from matrixsched.shard_locks where shard_id = cast(:shard as integer)", []),
        ("select from matrixsched.shard_locks where shard_id = cast(:shard as integer) or locked", ["shard_locks"]),
        ("select from matrixsched.shard_locks where not shard_id = :shard", ["shard_locks"]),
        ("select from matrixsched.shard_locks where shard_id = any (cast(:shards as integer[]))", ["shard_locks"]),
        ("select from matrixsched.shard_locks l join unnest(:a) as x (shard_id) on x.shard_id = l.shard_id", []),
        (
            "select from matrixsched.shard_locks l left join matrixsched.incoming_queue i on i.shard_id = l.shard_id "
            "where l.shard_id = :shard",
            [],
        ),
        (
            "select from matrixsched.shard_locks l left join matrixsched.incoming_queue i "
            "on i.shard_id = l.shard_id and l.shard_id = cast(:shard as integer)",
            ["shard_locks"],
        ),
        (
            "select from unnest(:lanes) as x (lane) join matrixsched.processing_queue p on p.lane = x.lane "
            "where x.shard_id = shard_id",
            ["processing_queue"],
        ),
        (
            "with mine as (select shard_id from matrixsched.shard_locks where shard_id = :shard) "
            "delete from matrixsched.incoming_queue i using mine m where i.shard_id = m.shard_id",
            [],
        ),
        (
            "with some as (select shard_id from matrixsched.shard_locks where locked) "
            "delete from matrixsched.incoming_queue i using some s where i.shard_id = s.shard_id",
            ["shard_locks", "incoming_queue"],
        ),
        (
            "select from matrixsched.shard_locks l "
            "cross join lateral (select from matrixsched.incoming_queue i where i.shard_id = l.shard_id) w "
            "where l.shard_id = :shard and exists (select from matrixsched.processing_queue p where p.lane = '')",
            ["processing_queue"],
        ),
        (
            "insert into matrixsched.attempt_history (shard_id, action_id) select r.shard_id, r.action_id "
            "from matrixsched.processing_queue r where r.shard_id = :shard",
            [],
        ),
        (
            "insert into matrixsched.attempt_history (action_id, shard_id) select action_id, length(action_id) "
            "from matrixsched.processing_queue where shard_id = :shard",
            ["attempt_history"],
        ),
    ],
)
def test_only_what_must_hold_binds(text: str, tables: list[str]):
    assert unbound(text, DISTRIBUTED, COLUMNS) == tables


def test_nothing_is_asked_of_a_session():
    assert asking(r"\b(un)?listen\b|pg_(try_)?advisory|\btemp(orary)?\s+table|\bdeclare\b|\bset\s+session\b") == set()
    assert asking(r"\bprepare\b|\bcurrval\b|\blastval\b|pg_backend_pid") == OF_THE_DOCTOR
    settings = [text for one in STATEMENTS.values() for text in re.findall(r"set_config\(.*", one.text)]
    assert [text for text in settings if not re.search(r", true\)", text)] == [], "it ends with the transaction"


def test_the_statements_of_every_attempt_are_among_those_that_keep_to_one_shard():
    found = set(keeping())
    assert LEAVING_OUT_MIN.keys() <= found
    assert {"schedule", "give_back", "release_shard", "close_fence", "replace_expected", "unblock"} <= found


def test_order_comes_from_no_sequence_and_nothing_from_a_trigger():
    assert asking(r"\bnextval\b") == set(SEQUENCES)
    schema = "\n".join(path.read_text() for path in POSTGRESQL.glob("*.sql")).lower()
    assert re.findall(r"create\s+(?:\w+\s+)*trigger|create\s+sequence|\bserial\b", schema) == []
    assert len(re.findall(r"\bas identity\b", schema)) == len(SEQUENCES)


def test_whoever_tells_others_can_be_told_not_to():
    tells = asking(r"\bpg_notify\b")
    assert tells - asking(r":channel as text\) is not null") == ALWAYS_TELL
