"""What the doctor makes of tables that are not as the migrations made them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.findings import bad, only

from matrixsched.ops.doctor.schema import judge_schema
from matrixsched.ops.findings import Finding
from matrixsched.store.facts import SchemaFacts
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION, Migration

EXPECTED = {
    "table limits": "logged",
    "column limits.name": "text collate C not null",
    "column limits.pool": "integer",
    "index limits.limits_pool": "CREATE INDEX limits_pool ON limits USING btree (pool)",
    "index limits.limits_pkey": "CREATE UNIQUE INDEX limits_pkey ON limits USING btree (name)",
    "constraint limits.limits_pkey": "PRIMARY KEY (name)",
    "constraint limits.limits_check": "CHECK (pool > 0)",
    "table chores": "logged",
    "column chores.name": "text not null default ''::text",
    "view shown": "view",
    "column shown.name": "text",
    "column shown.pool": "integer",
}
MADE = """
create table matrixsched.limits (name text collate "C" primary key, pool integer);
-- For people;
create view matrixsched.shown as
    select name, pool -- of all
      from matrixsched.limits;
"""
LIBRARY = [Migration(LIBRARY_SCHEMA_VERSION, "newest", "sum", MADE)]
AS_MADE = SchemaFacts(
    exists=True,
    catalogue=EXPECTED,
    checksums={LIBRARY_SCHEMA_VERSION: "sum"},
    version=LIBRARY_SCHEMA_VERSION,
    oldest_library=1,
)


def judged(facts: SchemaFacts, installation: str = "default", **options: Any) -> list[Finding]:
    known: dict[str, Any] = {"dialect": "postgresql", "expected": EXPECTED, "library": LIBRARY, "options": ""}
    return list(judge_schema(facts, installation=installation, **(known | options)))


def changed(**changes: str | None) -> SchemaFacts:
    """By `kind__name`; None takes it away."""
    named = {name.replace("__", " ", 1).replace("__", "."): text for name, text in changes.items()}
    found = {name: text for name, text in (EXPECTED | named).items() if text is not None}
    return replace(AS_MADE, catalogue=found)


@pytest.mark.parametrize(
    ("facts", "verdict", "check", "said", "remedy"),
    [
        (replace(AS_MADE, exists=False), "fault", "schema", "no installation", "`matrixsched init`"),
        (replace(AS_MADE, is_locked=True), "warning", "schema", "locked against everybody", "lock waits"),
        (replace(AS_MADE, version=None), "fault", "schema", "cannot be read", "privileges"),
        (replace(AS_MADE, version=5), "fault", "schema", "schema 5, this library makes", "`matrixsched upgrade`"),
        (replace(AS_MADE, version=99), "note", "schema", "newer", "newest version"),
        (replace(AS_MADE, version=99, oldest_library=98), "fault", "schema", "knows schema 98", "pip install"),
        (replace(AS_MADE, checksums={LIBRARY_SCHEMA_VERSION: "x"}), "fault", "migrations", "_newest", "release"),
        (changed(table__chores=None, column__chores__name=None), "fault", "drift", "table chores is missing", "backup"),
        (changed(column__limits__pool=None), "fault", "drift", "column limits.pool is missing (it was: integer)", ""),
        (
            changed(index__limits__limits_pool=None),
            *("fault", "drift", "index limits.limits_pool is missing"),
            "`CREATE INDEX CONCURRENTLY limits_pool ON matrixsched.limits USING btree (pool);`",
        ),
        (changed(column__limits__name="text"), "fault", "drift", "is `text`, not `text collate C not null`", "backup"),
        (
            changed(constraint__limits__limits_check=None),
            *("fault", "drift", "limits_check is missing (it was: CHECK (pool > 0))"),
            "`alter table matrixsched.limits add constraint limits_check CHECK (pool > 0) not valid; "
            "alter table matrixsched.limits validate constraint limits_check;`",
        ),
        (
            changed(constraint__limits__limits_pkey=None, index__limits__limits_pkey=None),
            *("fault", "drift", "constraint limits.limits_pkey is missing"),
            "`create unique index concurrently limits_pkey on matrixsched.limits (name); "
            "alter table matrixsched.limits add constraint limits_pkey primary key using index limits_pkey;`",
        ),
        (
            changed(table__limits="not logged"),
            *("fault", "drift", "is `not logged`, not `logged`", "`alter table matrixsched.limits set logged;`"),
        ),
        (changed(table__limits="partitioned"), "fault", "drift", "is `partitioned`", "backup"),
        (
            changed(column__limits__name="text collate C"),
            *("fault", "drift", "is `text collate C`"),
            "`alter table matrixsched.limits alter column name set not null;`",
        ),
        (
            changed(column__limits__pool="integer not null default 7"),
            *("fault", "drift", "is `integer not null default 7`, not `integer`"),
            "`alter table matrixsched.limits alter column pool drop default, alter column pool drop not null;`",
        ),
        (
            changed(column__chores__name="text not null"),
            *("fault", "drift", "is `text not null`, not `text not null default ''::text`"),
            "`alter table matrixsched.chores alter column name set default ''::text;`",
        ),
        (
            changed(view__shown=None, column__shown__name=None, column__shown__pool=None),
            *("fault", "drift", "view shown is missing"),
            "`create view matrixsched.shown as select name, pool from matrixsched.limits;`",
        ),
        (
            changed(index__limits__limits_pool=EXPECTED["index limits.limits_pool"] + " (invalid)"),
            *("fault", "drift", "is invalid", "`reindex index concurrently matrixsched.limits_pool;`"),
        ),
        (changed(trigger__limits__audit="CREATE TRIGGER"), "note", "drift", "trigger limits.audit", "remove it"),
    ],
)
def test_what_differs_from_the_migrations_is_told(
    facts: SchemaFacts, verdict: str, check: str, said: str, remedy: str
) -> None:
    finding = only(judged(facts))
    assert (finding.verdict.value, finding.check) == (verdict, check)
    assert said in finding.detail
    assert remedy in (finding.remedy or "")


def test_an_installation_as_it_was_made_is_said_to_be_so() -> None:
    assert bad(judged(AS_MADE)) == []
    assert bad(judged(changed(table__mine="logged", index__mine__other="CREATE INDEX"))) == [], "not one of our tables"


def test_names_are_those_of_the_installation() -> None:
    (missing,) = judged(replace(AS_MADE, exists=False), installation="second")
    assert missing.remedy == "Run `matrixsched init --installation second` once"
    (beside,) = judged(replace(AS_MADE, exists=False), installation="second", options=" --database x.db")
    assert beside.remedy == "Run `matrixsched init --database x.db --installation second` once"
    told = " --database x.db --installation second"
    (once,) = judged(replace(AS_MADE, exists=False), installation="second", options=told)
    assert once.remedy == f"Run `matrixsched init{told}` once"
    (old,) = [one for one in judged(replace(AS_MADE, version=5), options=told) if not one.is_ok]
    assert old.remedy == f"`matrixsched upgrade{told}`"
    found = changed(index__limits__limits_pool=None)
    assert "ON matrixsched_second.limits" in (only(judged(found, installation="second")).remedy or "")
    on_sqlite = only(judged(found, installation="second", dialect="sqlite"))
    assert "CREATE INDEX matrixsched_second_limits_pool ON matrixsched_second_limits" in (on_sqlite.remedy or "")
    other = only(judged(changed(constraint__limits__limits_check=None), dialect="sqlite"))
    assert "backup" in (other.remedy or ""), "SQLite takes no constraint out of a table, nor puts one in"


def test_the_text_of_a_table_is_no_news_where_a_column_of_it_is() -> None:
    both = changed(table__limits="other", column__limits__name="text")
    assert len(bad(judged(both, dialect="sqlite"))) == 1
    assert len(bad(judged(both))) == 2, "PostgreSQL tells of a table only what it is itself"
