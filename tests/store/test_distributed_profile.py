"""What an engine asks for that keeps the shards on several nodes, of each statement of the distributed form: whatever
writes or locks is about one shard, and says so of each table; only reads go over several, joined by the shard, and in a
way that Citus carries out (`support/citus_profile.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from simulation.sql_mutants import mutants
from support.citus_profile import bare, limited, locked_beside, placed, recursive, stranded, switched
from support.one_shard import choices_in, columnless, strays, tables_of, unjoined, volatile_in, writes

from matrixsched.store.migrations import load_migrations
from matrixsched.store.postgresql.distributed.making import COPIED, FILE, OLDEST_LIBRARY, SHARDED
from matrixsched.store.statements import load, load_distributed

Rule = Callable[[str, Collection[str]], list[str]]
POSTGRESQL = Path(__file__).resolve().parents[2] / "schema" / "postgresql"
STATEMENTS = load_distributed("default")
OF_SHARDS = {name: one.text for name, one in STATEMENTS.items() if tables_of(one.text) & set(SHARDED)}

LOOKED_FOR = "what is to be done is looked for in all shards, and then done shard after shard"
KEYED = "each row is asked for by its key, the shard among it"
ASKED = "an answer was lost, or nothing was written: rarely asked"
LOOK = "an operator, or a gauge, looks at all of them"
PLAN = "a window is planned for the whole fleet"
READ_OVER_SHARDS = {
    LOOKED_FOR: {
        *("acquire_shard.look", "acquire_shard.rest", "cancel_template.look", "expire_waiting.late"),
        *("prune_action_requests.shards", "prune_actions.old", "relist_lanes.heads", "spend.filled"),
        *("sweep_dead.look", "sweep_history.look"),
    },
    KEYED: {"find"},
    ASKED: {"carried_out.of_actions"},
    LOOK: {
        *("backlog.look", "count_old", "count_template", "find_in_installation.locks", "find_in_installation.others"),
        *("find_in_installation.strays", "pace", "page", "page_bounded.by_id", "page_bounded.finished"),
        *("page_bounded.of_template", "shards", "standing", "stock"),
    },
    PLAN: {"plan_window.count", "plan_window.due", "plan_window.unsettled"},
}

TWO_SHARDS = {"mend.misplaced", "mend.misplaced_drop"}
"""`fsck --repair` brings an action into its shard, or lets it or its namesake go: refused where another node has that,
and nothing is changed."""
TAKING = {"acquire_shard.take", "beat_shard", "claim", "extend", "keep_chore", "move", "take_chore"}
"""What takes, claims or prolongs something by the time that was asked."""
IN_TIME = r"(?:and|where) \(statement_timestamp\(\) < cast\(:late_at as timestamptz\)\) is not false\s"
BESIDE_OTHERS = {"find_in_installation.others", "standing"}
"""Reads that also name tables which are neither spread nor copied."""


def named(reasons: dict[str, set[str]]) -> set[str]:
    return set().union(*reasons.values())


def test_only_what_is_named_is_not_about_one_shard():
    found = {name for name, text in OF_SHARDS.items() if strays(text, SHARDED)}
    assert found == named(READ_OVER_SHARDS) | TWO_SHARDS


def test_nothing_over_several_shards_writes_or_locks():
    for name in sorted(named(READ_OVER_SHARDS)):
        assert writes(OF_SHARDS[name]) == set(), name


def test_what_is_read_over_several_shards_is_joined_by_the_shard():
    assert {name for name, text in OF_SHARDS.items() if unjoined(text, SHARDED)} == set()


@pytest.mark.parametrize("refused", [recursive, stranded, limited, bare, switched])
def test_what_is_read_over_several_shards_is_asked_as_several_nodes_can_answer_it(refused: Rule):
    assert {name: found for name, text in OF_SHARDS.items() if (found := refused(text, SHARDED))} == {}


@pytest.mark.parametrize("refused", [placed, locked_beside])
def test_what_is_carried_out_part_by_part_hands_on_what_can_be(refused: Callable[[str], list[str]]):
    found = {name: parts for name, text in OF_SHARDS.items() if (parts := refused(text))}
    assert found.keys() <= TWO_SHARDS


def test_what_writes_to_a_shard_calls_no_volatile_function():
    written = {name for name, text in OF_SHARDS.items() if writes(text) & set(SHARDED)}
    assert {name for name in written if volatile_in(OF_SHARDS[name])} == TWO_SHARDS
    assert {"schedule.write", "claim", "move", "record", "acquire_shard.take", "release_shard"} <= written


def test_what_writes_to_a_shard_calls_nothing_that_is_less_than_immutable_in_a_choice():
    """Citus evaluates such a call before it sends a statement, and refuses it inside of CASE and COALESCE."""
    for name, text in OF_SHARDS.items():
        assert not writes(text) or not re.search(r"cast\(:now as timestamptz\) [+-] (cast|interval)", text), name
        assert not writes(text) or "statement_timestamp" not in "".join(choices_in(text)), name


def test_the_clock_is_read_beside_a_write_only_to_see_whether_it_is_too_late():
    reading = {name: one.text for name, one in STATEMENTS.items() if "statement_timestamp" in one.text}
    assert set(reading) == {"now", *TAKING}
    for name in TAKING:
        assert reading[name].count("statement_timestamp()") == len(re.findall(IN_TIME, reading[name])), name


def test_what_a_part_of_a_statement_reads_for_the_others_has_a_column():
    """Where parts are carried out one after another, what one has found is handed on as rows, with columns."""
    assert {name for name, text in OF_SHARDS.items() if columnless(text)} == set()
    assert columnless("with a as (select from matrixsched.shard_locks), b as (select 1) select from a, b") == ["a"]


def test_beside_tables_of_shards_there_are_only_those_that_are_copied_and_nothing_writes_to_these():
    others = {name: tables_of(text) - set(SHARDED) for name, text in OF_SHARDS.items()}
    assert {name for name, tables in others.items() if tables - set(COPIED)} == BESIDE_OTHERS
    assert {name for name in OF_SHARDS if writes(OF_SHARDS[name]) - set(SHARDED)} == set()


def test_every_table_with_a_shard_is_spread():
    stored = {**json.loads((POSTGRESQL / "catalogue.json").read_text())}
    stored |= json.loads((POSTGRESQL / "distributed.json").read_text())
    found = {re.fullmatch(r"column (\w+)\.shard_id", name) for name in stored}
    assert {match[1] for match in found if match} == {*SHARDED, "readable_actions"}


def test_what_is_spread_was_there_when_the_distributed_form_was():
    """`init` spreads tables, `upgrade` does not: who adds one lets it do so, in installations that have this form."""
    early = [one for one in load_migrations("postgresql", "default") if one.number <= OLDEST_LIBRARY]
    made = " ".join(text for one in early for text in one.statements) + (POSTGRESQL / FILE).read_text()
    assert set(re.findall(r"create table matrixsched\.(\w+)", made)) >= {*SHARDED, *COPIED}


def test_what_has_a_text_of_its_own_differs_from_that_of_postgresql():
    usual = {name: one.text for name, one in load("postgresql", "default").items()}
    kept = {name for name, text in usual.items() if STATEMENTS.get(name) and STATEMENTS[name].text != text}
    assert {"cancel", "claim", "move", "record", "extend", "give_back", "unblock", "release_shard"} <= kept
    assert "{" not in "".join(one.text.replace("'{}'", "") for one in STATEMENTS.values())


BOUND = sorted(OF_SHARDS.keys() - named(READ_OVER_SHARDS) - TWO_SHARDS)
OF_WHICH_SHARD = re.compile(r"without (\w+\.)?shard_id = cast\(:shard_id as integer\)( \(\d+\))?$")


@pytest.mark.parametrize("name", BOUND)
def test_a_shard_that_is_left_out_is_noticed(name: str):
    careless = [one for one in mutants(OF_SHARDS[name], "postgresql") if OF_WHICH_SHARD.match(one.what)]
    assert [one.what for one in careless if not strays(one.text, SHARDED)] == []
    assert careless or "values" in OF_SHARDS[name] or name in ("call_off", "mend.no_lock")


ONE = "shard_id = cast(:shard_id as integer)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"select from matrixsched.shard_locks where {ONE}", []),
        (f"select from matrixsched.shard_locks where {ONE} or locked", ["shard_locks"]),
        ("select from matrixsched.shard_locks where shard_id = any (cast(:shard_id as integer[]))", ["shard_locks"]),
        (f"select from matrixsched.shard_locks l join matrixsched.incoming_queue i on i.{ONE} where l.{ONE}", []),
        (
            "select from matrixsched.shard_locks l join matrixsched.incoming_queue i on i.shard_id = l.shard_id "
            f"where l.{ONE}",
            ["incoming_queue"],
        ),
        (
            f"with mine as (select shard_id from matrixsched.shard_locks where {ONE}) "
            "delete from matrixsched.incoming_queue i using mine m where i.shard_id = m.shard_id",
            ["incoming_queue"],
        ),
        (
            f"select (select true from matrixsched.incoming_queue i where i.{ONE}) from matrixsched.shard_locks",
            ["shard_locks"],
        ),
        ("insert into matrixsched.incoming_queue (shard_id) values (cast(:shard_id as integer))", []),
        (
            f"insert into matrixsched.incoming_queue (action_id, shard_id) select 'a', shard_id "
            f"from matrixsched.shard_locks where {ONE}",
            ["incoming_queue"],
        ),
    ],
)
def test_only_the_parameter_itself_binds_a_table(text: str, found: list[str]):
    assert strays(text, SHARDED) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("select from matrixsched.shard_locks", []),
        (
            "select from matrixsched.shard_locks l join matrixsched.incoming_queue i on i.shard_id = l.shard_id",
            [],
        ),
        ("select from matrixsched.shard_locks l cross join matrixsched.incoming_queue i", ["incoming_queue"]),
        (
            "select from matrixsched.shard_locks where exists (select from matrixsched.incoming_queue where lane = '')",
            ["incoming_queue"],
        ),
    ],
)
def test_what_is_read_beside_others_without_the_shard_is_noticed(text: str, found: list[str]):
    assert unjoined(text, SHARDED) == found


LOCKS = "matrixsched.shard_locks"
ROWS = "matrixsched.processing_queue"
LANES = "unnest(cast(:lanes as text[])) as k (lane)"
SKIPPING = (
    "with recursive lanes (lane) as ((select min(p.lane) from {rows} p where {bound}) union all "
    "select (select min(p.lane) from {rows} p where {bound} and p.lane > c.lane) from lanes c where c.lane <> '') "
    "select lane from lanes"
)


@pytest.mark.parametrize(
    ("refused", "text", "found"),
    [
        (recursive, SKIPPING.format(rows=ROWS, bound="p.lane >= ''"), ["processing_queue"] * 2),
        (recursive, SKIPPING.format(rows=ROWS, bound=f"p.{ONE}"), []),
        (
            stranded,
            f"select (select count(*) from {ROWS} p where p.lane = s.lane) from (values ('a'), ('b')) as s (lane)",
            ["processing_queue"],
        ),
        (
            stranded,
            f"select k.lane from {LANES} where exists (select from {ROWS} p where p.lane = k.lane)",
            ["processing_queue"],
        ),
        (
            stranded,
            f"select k.lane, (select count(*) from {ROWS} p where p.{ONE} and p.lane = k.lane) from {LANES}",
            [],
        ),
        (stranded, f"select (select count(*) from {ROWS}) as waiting from (values ('a'), ('b')) as s (lane)", []),
        (
            stranded,
            f"select w.found from {LOCKS} l cross join lateral "
            f"(select (select true from {ROWS} p where p.shard_id = l.shard_id limit 1) as found offset 0) w",
            ["processing_queue"],
        ),
        (
            stranded,
            f"select (select true from {ROWS} p where p.shard_id = l.shard_id and p.lane = k.lane limit 1) "
            f"from {LOCKS} l cross join {LANES}",
            [],
        ),
        (
            limited,
            f"select p.scheduled_at from {LANES} cross join lateral "
            f"(select p.scheduled_at from {ROWS} p where p.lane = k.lane order by p.scheduled_at limit 1) p",
            ["processing_queue"],
        ),
        (
            limited,
            f"with k as materialized (select lane from matrixsched.held_lanes) select c.waiting from k "
            f"cross join lateral (select count(*) as waiting from {ROWS} p where p.lane = k.lane) c",
            ["processing_queue"],
        ),
        (
            limited,
            f"select p.scheduled_at from {LOCKS} l cross join {LANES} cross join lateral (select p.scheduled_at "
            f"from {ROWS} p where p.shard_id = l.shard_id and p.lane = k.lane order by p.scheduled_at limit 1) p",
            ["processing_queue"],
        ),
        (
            limited,
            f"select p.scheduled_at from {LOCKS} l cross join lateral (select p.scheduled_at "
            f"from {ROWS} p where p.shard_id = l.shard_id order by p.scheduled_at limit 1) p",
            [],
        ),
        (bare, f"select count(*) from (select from {ROWS} limit 9) w", ["processing_queue"]),
        (bare, f"select count(*) from (select true from {ROWS} limit 9) w", []),
        (
            bare,
            "select (select count(*) from "
            f"(select from {ROWS} p where p.shard_id = l.shard_id limit 9) w) from {LOCKS} l",
            [],
        ),
        (
            switched,
            f"select p.lane from {LOCKS} l left join lateral (select p.lane from {ROWS} p "
            "where cast(:really as boolean) and p.shard_id = l.shard_id limit 1) p on true",
            ["processing_queue"],
        ),
        (
            switched,
            f"select p.lane from {LOCKS} l left join lateral (select p.lane from {ROWS} p "
            "where l.locked and p.shard_id = l.shard_id limit 1) p on true",
            [],
        ),
    ],
)
def test_what_several_nodes_cannot_answer_is_noticed(refused: Rule, text: str, found: list[str]):
    assert refused(text, SHARDED) == found


KEPT = "insert into matrixsched.attempt_history (shard_id) select shard_id from due"


@pytest.mark.parametrize(
    ("refused", "text", "found"),
    [
        (placed, f"with due as (select p.ctid, p.shard_id from {ROWS} p where p.{ONE}) {KEPT}", ["due"]),
        (
            placed,
            f"with due as (select cast(p.ctid as text) as ctid, p.shard_id from {ROWS} p where p.{ONE}) {KEPT}",
            [],
        ),
        (
            placed,
            f"with due as (select q.* from unnest(:ids) g cross join lateral (select p.ctid, p.shard_id from {ROWS} p "
            f"where p.{ONE}) q) {KEPT}",
            ["due"],
        ),
        (
            placed,
            f"with due as (select shard_id from {ROWS} where {ONE}), kept as ({KEPT}) "
            f"delete from {ROWS} where {ONE} and ctid = any (array(select place from due))",
            ["processing_queue"],
        ),
        (
            placed,
            f"with due as (select ctid from {ROWS} where {ONE}) "
            f"delete from {ROWS} where ctid in (select ctid from due)",
            [],
        ),
        (
            locked_beside,
            f"with due as (select p.shard_id from {ROWS} p join unnest(:ids) as g (id) on g.id = p.action_id "
            f"where p.{ONE} for update of p) {KEPT}",
            ["p"],
        ),
        (
            locked_beside,
            "with due as (select q.shard_id from unnest(:ids) as g (id) "
            f"cross join lateral (select p.shard_id from {ROWS} p where p.{ONE} and p.action_id = g.id "
            f"for update of p) q) {KEPT}",
            [],
        ),
    ],
)
def test_what_cannot_be_handed_on_is_noticed(refused: Callable[[str], list[str]], text: str, found: list[str]):
    assert refused(text) == found


def test_locks_count_as_writes():
    assert writes("select from matrixsched.shard_locks for update skip locked") == {"shard_locks"}
    assert writes("select from matrixsched.shard_locks") == set()
