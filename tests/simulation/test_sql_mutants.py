"""What counts as a small mistake in a statement."""

from __future__ import annotations

import sqlite3

from matrixsched.store.statements import load
from simulation.sql_mutants import mutants

CLAIM = """
update queue as q set claimed_by = :me
 where q.id in (select p.id from queue p where p.due <= :now and (p.lane = :lane or p.free) order by p.due limit 1
                for update of p skip locked)
   and case when q.held and q.until > :now then false else true end
returning q.id
"""


def test_each_predicate_bound_and_lock_is_one_mutant() -> None:
    found = {one.what: " ".join(one.text.split()) for one in mutants(CLAIM, "postgresql")}
    assert list(found) == [
        "without q.id in (select p.id from queue p where p.due <= :now and (p.lane = :lane or p.free) order by p.due "
        "limit 1 for update of p skip locked)",
        "without p.due <= :now",
        "without (p.lane = :lane or p.free)",
        "without case when q.held and q.until > :now then false else true end",
        "without q.until > :now",
        "never p.lane = :lane",
        "never p.free",
        "never q.held and q.until > :now",
        "without q.held",
        "bound due < :",
        "bound until >= :",
        "without for update of p skip locked",
        "without skip locked",
    ]
    assert "where true and (p.lane = :lane or p.free) order by" in found["without p.due <= :now"]
    assert "and (false or p.free) order by" in found["never p.lane = :lane"]
    assert "and (p.lane = :lane or false) order by" in found["never p.free"]
    assert "and case when false then false else true end" in found["never q.held and q.until > :now"]
    assert "and case when true and q.until > :now then false" in found["without q.held"]
    assert "limit 1 ) and case" in found["without for update of p skip locked"]
    assert "for update of p ) and case" in found["without skip locked"]


def test_alternatives_bind_weaker_than_predicates_and_branches_may_be_values() -> None:
    chosen = (
        "select case :turn when 'a' then 1 when 'b' then 2 end from t where x and y or not z or case when v then w end"
    )
    assert {one.what: one.text for one in mutants(chosen, "sqlite") if one.what.startswith("never")} == {
        "never x and y": chosen.replace("x and y", "false"),
        "never not z": chosen.replace("not z", "false"),
        "never case when v then w end": chosen.replace("case when v then w end", "false"),
        "never 'a'": chosen.replace("'a'", "null"),
        "never 'b'": chosen.replace("'b'", "null"),
        "never v": chosen.replace("when v", "when false"),
    }


def test_a_conflict_clause_is_left_out_alone() -> None:
    insert = "insert into t (a) select 1 where true on conflict (a) do update set a = excluded.a returning a"
    (without,) = mutants(insert, "sqlite")
    assert without.text == "insert into t (a) select 1 where true  returning a"


def test_a_pause_point_stays() -> None:
    for name, statement in load("postgresql", "default").items():
        points = statement.text.count("/* pause point: ")
        for mutant in mutants(statement.text, "postgresql"):
            assert mutant.text.count("/* pause point: ") == points, f"{name}: {mutant.what}"


def test_mutants_are_statements_again() -> None:
    connection = sqlite3.connect(":memory:")
    for statement in load("sqlite", "default").values():
        for mutant in mutants(statement.text, "sqlite"):
            assert "syntax error" not in objection(connection, mutant.text), f"{statement.name}: {mutant.what}"
    connection.close()


def objection(connection: sqlite3.Connection, text: str) -> str:
    """Why SQLite does not carry it out: at least that the tables are not there, once it understands the grammar."""
    try:
        connection.execute(f"explain {text}")
    except sqlite3.Error as error:
        return str(error)
    return ""
