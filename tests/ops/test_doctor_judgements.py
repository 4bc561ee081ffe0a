"""What the doctor makes of facts: tables of what is seen, and of what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from matrixsched.ops.doctor.clocks import judge_clock
from matrixsched.ops.doctor.file import judge_file
from matrixsched.ops.doctor.fleet import FleetFacts, judge_fleet, judge_gates
from matrixsched.ops.doctor.schema import judge_privileges, judge_schema
from matrixsched.ops.doctor.server import judge_connections, judge_pooler, judge_server
from matrixsched.ops.doctor.sessions import judge_sessions
from matrixsched.ops.doctor.vacuuming import judge_vacuuming
from matrixsched.ops.findings import Finding, Verdict
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.gates import Gate
from matrixsched.rules.limits import Limit
from matrixsched.rules.templates import Template
from matrixsched.store.facts import (
    ClockReading,
    Connections,
    FileFacts,
    LockWait,
    OpenTransaction,
    Pooler,
    PostgresFacts,
    SchemaFacts,
    Setting,
    SqliteFacts,
    TableFacts,
)
from matrixsched.store.fleet import ChoreReport, Parked
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION, Migration
from matrixsched.store.values import Backlog, ShardReport

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))

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


def bad(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.verdict.value, finding.check) for finding in findings if finding.verdict is not Verdict.OK]


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = [finding for finding in findings if finding.verdict is not Verdict.OK]
    return finding


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


# The schema.

EXPECTED = {
    "table limits": "logged",
    "column limits.name": "text collate C not null",
    "column limits.pool": "integer",
    "index limits.limits_pool": "CREATE INDEX limits_pool ON limits USING btree (pool)",
    "constraint limits.limits_check": "CHECK (pool > 0)",
    "table chores": "logged",
    "column chores.name": "text",
}
LIBRARY = [Migration(LIBRARY_SCHEMA_VERSION, "newest", "sum", "")]
AS_MADE = SchemaFacts(
    exists=True,
    catalogue=EXPECTED,
    checksums={LIBRARY_SCHEMA_VERSION: "sum"},
    version=LIBRARY_SCHEMA_VERSION,
    oldest_library=1,
)


def judged(facts: SchemaFacts, installation: str = "default", **options: Any) -> list[Finding]:
    known: dict[str, Any] = {"dialect": "postgresql", "expected": EXPECTED, "library": LIBRARY}
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
            "`CREATE INDEX limits_pool ON matrixsched.limits USING btree (pool);`",
        ),
        (changed(column__limits__name="text"), "fault", "drift", "is `text`, not `text collate C not null`", "backup"),
        (changed(constraint__limits__limits_check=None), "fault", "drift", "limits_check is missing", "backup"),
        (changed(table__limits="not logged"), "fault", "drift", "is `not logged`, not `logged`", "backup"),
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
    assert missing.remedy == "`matrixsched init --installation second`"
    found = changed(index__limits__limits_pool=None)
    assert "ON matrixsched_second.limits" in (only(judged(found, installation="second")).remedy or "")
    on_sqlite = only(judged(found, installation="second", dialect="sqlite"))
    assert "CREATE INDEX matrixsched_second_limits_pool ON matrixsched_second_limits" in (on_sqlite.remedy or "")


def test_the_text_of_a_table_is_no_news_where_a_column_of_it_is() -> None:
    assert len(bad(judged(changed(table__limits="other", column__limits__name="text")))) == 1


def test_privileges_that_are_missing_are_told_with_the_grant() -> None:
    lacking = replace(QUEUE, lacking=["INSERT", "DELETE"])
    read_only = replace(QUEUE, name="migrations", lacking=["INSERT", "UPDATE", "DELETE"])
    facts = replace(GOOD, tables=[lacking, read_only])
    finding = only(judge_privileges(facts))
    assert "on 1 of 2 tables: incoming_queue (insert, delete)" in finding.detail
    assert finding.remedy == "`grant select, insert, update, delete on all tables in schema matrixsched to app;`"
    closed = only(judge_privileges(replace(GOOD, can_use_schema=False)))
    assert closed.remedy == "`grant usage on schema matrixsched to app;`"


# A file.

FILE = FileFacts(path="/data/x.db", size=1 << 20, mode=0o644, uid=1000, is_ours_to_write=True)
GOOD_FILE = SqliteFacts(
    version=(3, 51, 3),
    file=FILE,
    wal=replace(FILE, path="/data/x.db-wal"),
    shm=replace(FILE, path="/data/x.db-shm"),
    lock=replace(FILE, path="/data/x.db.lock"),
    folder=replace(FILE, path="/data", mode=0o755),
    filesystem="ext4",
    free_bytes=10 << 30,
    journal_mode="wal",
    page_size=4096,
    page_count=1000,
    free_pages=10,
    faults=None,
    writer_waited=timedelta(0),
    is_writer_stuck=False,
    writers=(),
    schema=SchemaFacts(exists=True),
)


def test_a_file_as_it_should_be_has_nothing_but_good_findings() -> None:
    assert bad(judge_file(GOOD_FILE)) == []
    assert bad(judge_file(replace(GOOD_FILE, wal=None, shm=None, lock=None, faults=[]))) == []


@pytest.mark.parametrize(
    ("changes", "verdict", "check", "said"),
    [
        ({"version": (3, 51, 2)}, "note", "library", "SQLite 3.51.2: before 3.51.3 a rare race"),
        ({"journal_mode": "delete"}, "fault", "journal", "the journal mode was delete"),
        ({"filesystem": None}, "note", "filesystem", "does not tell"),
        ({"filesystem": "nfs4"}, "fault", "filesystem", "lies on nfs4"),
        ({"filesystem": "fuse.sshfs"}, "fault", "filesystem", "fuse.sshfs"),
        ({"filesystem": "fuse.mergerfs"}, "warning", "filesystem", "depends on the program"),
        ({"file": replace(FILE, is_ours_to_write=False)}, "fault", "permissions", "not for us to write"),
        ({"file": replace(FILE, mode=0o444)}, "fault", "permissions", "(mode 0444) is for nobody but root"),
        ({"wal": replace(FILE, path="/data/x.db-wal", uid=0)}, "warning", "permissions", "another user"),
        (
            {"is_writer_stuck": True, "writer_waited": 2 * SECOND, "writers": (41,)},
            *("fault", "writers", "process 41 has kept the right to write for all of the 2.0 s"),
        ),
        ({"is_writer_stuck": True}, "fault", "writers", "some process"),
        ({"wal": replace(FILE, size=64 << 20)}, "warning", "log", "64.0 MiB"),
        ({"free_bytes": 1 << 29}, "warning", "space", "512.0 MiB free"),
        ({"free_bytes": 1 << 20}, "fault", "space", "1.0 MiB free"),
        ({"page_count": 100_000, "free_pages": 60_000}, "note", "bloat", "234.4 MiB of 390.6 MiB"),
        ({"faults": ["row 3 missing from index x"]}, "fault", "integrity", "row 3 missing"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(changes: dict[str, Any], verdict: str, check: str, said: str) -> None:
    finding = only(judge_file(replace(GOOD_FILE, **changes)))
    assert (finding.verdict.value, finding.check) == (verdict, check)
    assert said in finding.detail
    assert finding.remedy or changes == {"filesystem": None}


# The fleet.


def a_shard(number: int = 0, **changes: Any) -> ShardReport:
    known: dict[str, Any] = {"locked": False, "locked_by": "worker-a", "heartbeat_at": NOW, "oldest_due_at": None}
    given = known | changes
    return ShardReport(
        shard=number,
        lock_guid=UUID(int=number),
        locked_at=given["heartbeat_at"],
        heartbeat_age=NOW - given["heartbeat_at"],
        incoming=0,
        processing=0,
        **given,
    )


def a_fleet(*shards: ShardReport, due: int = 0, oldest: datetime | None = None, **changes: Any) -> FleetFacts:
    tidy = ChoreReport("tidy", False, EPOCH, NOW - MINUTE)
    facts = FleetFacts(
        shards=shards or [a_shard()], backlog=Backlog(now=NOW, due=due, oldest_due_at=oldest), chores=[tidy]
    )
    return replace(facts, **changes)


def a_chore(done_at: datetime | None, held_until: datetime = EPOCH) -> list[ChoreReport]:
    return [ChoreReport("tidy", held_until > EPOCH, held_until, done_at)]


LONG_AGO = NOW - HOUR
DESERTED = {"chores": a_chore(None)}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (a_fleet(), []),
        (a_fleet(a_shard(heartbeat_at=LONG_AGO), **DESERTED), [("note", "workers")]),
        (a_fleet(a_shard(heartbeat_at=EPOCH), due=1, oldest=NOW - SECOND, **DESERTED), [("note", "workers")]),
        (a_fleet(a_shard(heartbeat_at=EPOCH), due=1, oldest=LONG_AGO, **DESERTED), [("fault", "workers")]),
        (a_fleet(a_shard(heartbeat_at=LONG_AGO, locked=True), a_shard(1)), [("warning", "shards")]),
        (a_fleet(a_shard(oldest_due_at=NOW - 59 * SECOND)), []),
        (a_fleet(a_shard(oldest_due_at=LONG_AGO)), [("warning", "shards")]),
        (
            a_fleet(a_shard(heartbeat_at=EPOCH, oldest_due_at=LONG_AGO), due=1, oldest=LONG_AGO, **DESERTED),
            [("fault", "workers"), ("fault", "shards")],
        ),
        (a_fleet(chores=a_chore(NOW - 2 * HOUR)), [("warning", "tidying")]),
        (a_fleet(chores=a_chore(None)), [("warning", "tidying")]),
        (a_fleet(chores=a_chore(NOW - 2 * HOUR, held_until=NOW + SECOND)), []),
        (a_fleet(chores=a_chore(NOW - 2 * HOUR, held_until=NOW - HOUR)), [("warning", "tidying")]),
        (a_fleet(quarantined=3), [("warning", "quarantine")]),
        (a_fleet(parked=[Parked("mail", 3, NOW - SECOND)]), []),
        (a_fleet(parked=[Parked("mail", 3, LONG_AGO)]), [("fault", "handlers")]),
        (a_fleet(parked=[Parked("mail", 3, LONG_AGO)], known={"mail"}), [("warning", "handlers")]),
        (a_fleet(parked=[Parked("mail", 3, LONG_AGO)], known={"x"}, unknown={"mail": 1}), [("fault", "handlers")]),
        (a_fleet(known={"x"}, unknown={"mail": 1}), [("note", "handlers")]),
    ],
)
def test_how_the_fleet_fares_is_told(facts: FleetFacts, expected: list[tuple[str, str]]) -> None:
    assert bad(judge_fleet(facts, MINUTE, "")) == expected


def a_template(**changes: Any) -> Template:
    return replace(Template(name="promo"), **changes)


@pytest.mark.parametrize(
    ("template", "held", "verdict"),
    [
        (a_template(), 9, None),
        (a_template(paused_at=NOW - HOUR), 9, "note"),
        (a_template(paused_at=NOW - DAY), 9, "warning"),
        (a_template(paused_at=NOW - DAY), 0, "note"),
        (a_template(paused_at=NOW - DAY, paused_until=NOW + HOUR), 9, "note"),
        (a_template(paused_at=NOW - DAY, paused_until=NOW - HOUR), 9, None),
    ],
)
def test_a_template_that_somebody_may_have_forgotten_is_told(
    template: Template, held: int, verdict: str | None
) -> None:
    facts = a_fleet(templates=[template], gates=GateReport(held={(Gate.PAUSED, "promo"): held} if held else {}))
    found = [finding for finding in judge_gates(facts, MINUTE, " --installation x") if not finding.is_ok]
    assert [finding.verdict.value for finding in found] == ([] if verdict is None else [verdict])
    if found:
        assert found[0].remedy == "`matrixsched templates resume promo --installation x`"


def test_a_limit_that_was_told_to_slow_down_is_told() -> None:
    limit = Limit(name="global", updated_at=NOW, slow_until=NOW + HOUR)
    finding = only(judge_gates(a_fleet(limits=[limit, replace(limit, slow_until=NOW)]), MINUTE, ""))
    assert "'global' is slowed down to nothing for another 1 h 0 min" in finding.detail
    assert finding.remedy == "`matrixsched limits resume global`"
