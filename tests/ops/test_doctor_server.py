"""What the doctor makes of a PostgreSQL server: tables of what is seen, and of what is said of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.findings import bad, only

from matrixsched.ops.doctor.clocks import judge_clock
from matrixsched.ops.doctor.schema import judge_privileges
from matrixsched.ops.doctor.server import judge_connections, judge_pooler, judge_server
from matrixsched.ops.doctor.sessions import judge_sessions
from matrixsched.ops.doctor.vacuuming import judge_vacuuming
from matrixsched.ops.findings import Verdict
from matrixsched.store.facts import (
    ClockReading,
    Connections,
    LockWait,
    OpenTransaction,
    Pooler,
    PostgresFacts,
    SchemaFacts,
    Setting,
    TableFacts,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "server_encoding": "UTF8",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "autovacuum": "on",
    "autovacuum_freeze_max_age": "200000000",
    "track_counts": "on",
}
CONNECTIONS = Connections(
    used=10, most=100, reserved=3, role_most=None, database_most=None, role_used=5, database_used=5
)
GOOD = PostgresFacts(
    version=170004,
    version_text="17.4",
    role="app",
    database="Orders",
    namespace="matrixsched",
    settings={name: Setting(value, "default") for name, value in SETTINGS.items()},
    is_standby=False,
    clock=ClockReading(NOW, NOW, NOW),
    pooler=None,
    is_preparing=True,
    is_listening=True,
    connections=CONNECTIONS,
    schema=SchemaFacts(exists=True),
)
QUEUE = TableFacts(name="incoming_queue", is_vacuumed=True, live=1000, dead=5000, vacuumed_at=NOW, frozen_age=1)


def with_setting(name: str, value: str, origin: str = "server") -> PostgresFacts:
    return replace(GOOD, settings={**GOOD.settings, name: Setting(value, origin)})


# The server.


def test_a_server_as_it_should_be_has_nothing_but_good_findings() -> None:
    facts = replace(GOOD, tables=[QUEUE])
    found = [*judge_server(facts), judge_connections(facts.connections), judge_pooler(facts), judge_clock(facts.clock)]
    found += [*judge_sessions(facts, MINUTE), *judge_vacuuming(facts), *judge_privileges(facts)]
    assert bad(found) == []
    assert {"server", "durability", "isolation", "timeouts", "connections", "pooler", "clock"} <= {
        one.check for one in found
    }


@pytest.mark.parametrize(
    ("facts", "verdict", "check", "said"),
    [
        (replace(GOOD, version=140011), "fault", "server", "older than 15"),
        (replace(GOOD, is_standby=True), "fault", "writable", "standby"),
        (with_setting("default_transaction_read_only", "on", "role"), "fault", "writable", "set for the role app"),
        (with_setting("server_encoding", "LATIN1"), "fault", "encoding", "LATIN1"),
        (with_setting("fsync", "off"), "fault", "durability", "fsync is off (set for the whole server)"),
        (with_setting("full_page_writes", "off"), "fault", "durability", "damaged"),
        (with_setting("synchronous_commit", "off", "database"), "fault", "durability", "set for the database Orders"),
        (with_setting("default_transaction_isolation", "serializable"), "note", "isolation", "two round trips more"),
        (with_setting("statement_timeout", "999"), "fault", "timeouts", "statement_timeout is 999 ms"),
        (with_setting("statement_timeout", "5000"), "warning", "timeouts", "statement_timeout is 5.0 s"),
        (with_setting("transaction_timeout", "10"), "fault", "timeouts", "transaction_timeout is 10 ms"),
        (with_setting("lock_timeout", "50"), "warning", "timeouts", "lock_timeout is 50 ms"),
        (with_setting("idle_in_transaction_session_timeout", "50"), "warning", "timeouts", "50 ms"),
    ],
)
def test_what_is_wrong_with_a_server_is_told(facts: PostgresFacts, verdict: str, check: str, said: str) -> None:
    finding = only(judge_server(facts))
    assert (finding.verdict.value, finding.check) == (verdict, check)
    assert said in finding.detail
    assert finding.remedy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("statement_timeout", "30000"),
        ("transaction_timeout", "60000"),
        ("lock_timeout", "1000"),
        ("idle_in_transaction_session_timeout", "1000"),
        ("synchronous_commit", "local"),
        ("synchronous_commit", "remote_apply"),
    ],
)
def test_what_does_no_harm_is_not_told(name: str, value: str) -> None:
    assert bad(judge_server(with_setting(name, value))) == []


@pytest.mark.parametrize(
    ("origin", "remedy"),
    [
        ("database", '`alter database "Orders" reset fsync;`'),
        ("role", '`alter role app reset fsync; alter role app in database "Orders" reset fsync;`'),
        ("connection", "take fsync out of the URL"),
        ("server", "`alter system set fsync = on; select pg_reload_conf();`"),
    ],
)
def test_a_setting_is_undone_where_it_was_made(origin: str, remedy: str) -> None:
    assert only(judge_server(with_setting("fsync", "off", origin))).remedy == remedy


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"used": 77}, "ok", "77 of the 97 connections of the server"),
        ({"used": 78}, "warning", "78 of the 97"),
        ({"used": 93}, "fault", "93 of the 97"),
        ({"role_most": 5}, "fault", "5 of the 5 connections of the role"),
        ({"database_most": 6}, "warning", "5 of the 6 connections of the database"),
        ({"database_most": 0}, "fault", "5 of the 0"),
    ],
)
def test_connections_are_told_of_before_there_are_none(changes: dict[str, int], verdict: str, said: str) -> None:
    finding = judge_connections(replace(CONNECTIONS, **changes))
    assert finding.verdict.value == verdict
    assert said in finding.detail


@pytest.mark.parametrize(
    ("pooler", "preparing", "listening", "verdict", "remedy"),
    [
        (None, True, True, "ok", None),
        (Pooler(is_shared=False), True, True, "ok", None),
        (Pooler(is_shared=True), True, True, "fault", "`?prepared_statements=off&listen=off`"),
        (Pooler(is_shared=True), False, True, "fault", "`?listen=off`"),
        (Pooler(is_shared=True), False, False, "note", "lower --rest-max"),
    ],
)
def test_a_pooler_is_judged_with_how_our_connections_are_made(
    pooler: Pooler | None, preparing: bool, listening: bool, verdict: str, remedy: str | None
) -> None:
    finding = judge_pooler(replace(GOOD, pooler=pooler, is_preparing=preparing, is_listening=listening))
    assert finding.verdict.value == verdict
    assert (finding.remedy is None) == (remedy is None)
    assert (remedy or "") in (finding.remedy or "")


@pytest.mark.parametrize(
    ("asked", "database", "answered", "verdict"),
    [
        (0.0, 1.0, 2.0, "ok"),
        (0.0, 9.0, 20.0, "ok"),  # it may have been read at any moment of these twenty seconds
        (0.0, 2.9, 2.0, "ok"),
        (0.0, 3.1, 2.0, "warning"),
        (0.0, -1.5, 2.0, "warning"),
        (0.0, 12.5, 2.0, "fault"),
        (0.0, -10.5, 2.0, "fault"),
    ],
)
def test_a_clock_is_wrong_only_by_what_the_round_trip_does_not_explain(
    asked: float, database: float, answered: float, verdict: str
) -> None:
    reading = ClockReading(*(NOW + timedelta(seconds=one) for one in (asked, database, answered)))
    assert judge_clock(reading).verdict.value == verdict


# Sessions.


def a_transaction(**changes: Any) -> OpenTransaction:
    known: dict[str, Any] = {"kind": "session", "name": "41", "who": "ann, psql", "state": "idle in transaction"}
    return OpenTransaction(**(known | {"age": 2 * MINUTE, "xmin_age": 7} | changes))


@pytest.mark.parametrize(
    ("transaction", "told", "remedy"),
    [
        (a_transaction(), True, "pg_terminate_backend(41)"),
        (a_transaction(age=59 * SECOND), False, ""),
        (a_transaction(kind="prepared transaction", name="o'x"), True, "rollback prepared 'o''x'"),
        (a_transaction(kind="replication slot", name="s", age=None, xmin_age=2_000_000), True, "drop_replication_slot"),
        (a_transaction(kind="replication slot", name="s", age=None, xmin_age=10), False, ""),
        (a_transaction(age=None, xmin_age=None), False, ""),
    ],
)
def test_what_stays_open_for_longer_than_one_has_patience_for_is_told(
    transaction: OpenTransaction, told: bool, remedy: str
) -> None:
    found = bad(judge_sessions(replace(GOOD, transactions=[transaction]), MINUTE))
    assert found == ([("warning", "transactions")] if told else [])
    if told:
        assert remedy in (only(judge_sessions(replace(GOOD, transactions=[transaction]), MINUTE)).remedy or "")


@pytest.mark.parametrize(("waited", "verdict"), [(SECOND, "note"), (MINUTE, "warning")])
def test_a_lock_wait_is_told_with_who_is_in_the_way(waited: timedelta, verdict: str) -> None:
    wait = LockWait(
        pid=5,
        who="app",
        tables=["limits"],
        mode="ShareLock",
        waited=waited,
        blocked_by=[6, 7],
        blockers="6 (ann), 7 (bob)",
    )
    finding = only(judge_sessions(replace(GOOD, lock_waits=[wait]), MINUTE))
    assert (finding.verdict.value, finding.check) == (verdict, "lock waits")
    assert "limits, behind 6 (ann), 7 (bob)" in finding.detail
    assert "pg_terminate_backend(6); select pg_terminate_backend(7);" in (finding.remedy or "")


def test_what_a_view_hides_is_said_to_be_hidden() -> None:
    finding = only(judge_sessions(replace(GOOD, hidden_sessions=3), MINUTE))
    assert (finding.verdict, finding.check) == (Verdict.NOTE, "hidden")
    assert finding.remedy == "to be told more: `grant pg_read_all_stats to app;`"


# Dead rows.


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (replace(GOOD, tables=[QUEUE]), []),
        (with_setting("autovacuum", "off"), [("fault", "autovacuum")]),
        (with_setting("track_counts", "off"), [("fault", "autovacuum")]),
        (replace(GOOD, tables=[replace(QUEUE, is_vacuumed=False)]), [("fault", "autovacuum")]),
        (replace(GOOD, tables=[replace(QUEUE, dead=50_000)]), [("warning", "bloat")]),
        (replace(GOOD, tables=[replace(QUEUE, dead=50_000, live=1_000_000)]), []),
        (replace(GOOD, tables=[replace(QUEUE, dead=49_999)]), []),
        (replace(GOOD, tables=[replace(QUEUE, frozen_age=300_000_001)]), [("warning", "freezing")]),
        (replace(GOOD, tables=[replace(QUEUE, frozen_age=1_600_000_000)]), [("fault", "freezing")]),
    ],
)
def test_dead_rows_that_are_not_cleared_away_are_told(facts: PostgresFacts, expected: list[tuple[str, str]]) -> None:
    assert bad(judge_vacuuming(facts)) == expected


# Privileges.


def test_privileges_that_are_missing_are_told_with_the_grant() -> None:
    lacking = replace(QUEUE, lacking=["INSERT", "DELETE"])
    read_only = replace(QUEUE, name="migrations", lacking=["INSERT", "UPDATE", "DELETE"])
    facts = replace(GOOD, tables=[lacking, read_only])
    finding = only(judge_privileges(facts))
    assert "on 1 of 2 tables: incoming_queue (insert, delete)" in finding.detail
    assert finding.remedy == "`grant select, insert, update, delete on all tables in schema matrixsched to app;`"
    closed = only(judge_privileges(replace(GOOD, can_use_schema=False)))
    assert closed.remedy == "`grant usage on schema matrixsched to app;`"


@pytest.mark.parametrize(("hides", "verdict"), [(True, "fault"), (False, "warning")])
def test_row_level_security_is_told_whether_it_hides_rows_from_us_or_not(hides: bool, verdict: str) -> None:
    secured = replace(QUEUE, has_row_security=True, hides_rows=hides)
    finding = only(judge_privileges(replace(GOOD, tables=[QUEUE, secured])))
    assert (finding.verdict.value, finding.check) == (verdict, "row security")
    assert finding.remedy == "as their owner: `alter table matrixsched.incoming_queue disable row level security;`"


def test_whoever_ends_read_only_transactions_is_not_in_one() -> None:
    finding = only(judge_server(with_setting("default_transaction_read_only", "on", "database")))
    reset = 'alter database "Orders" reset default_transaction_read_only;'
    assert finding.remedy == f"`set default_transaction_read_only = off; {reset}`"
    finding = only(judge_server(with_setting("default_transaction_read_only", "on", "connection")))
    assert finding.remedy == "take default_transaction_read_only out of the URL"
