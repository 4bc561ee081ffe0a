"""`matrixsched doctor` on databases that are set up well, and on such that are set up badly, for real."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from support.command import Answer, Matrixsched, on
from support.drivers import connect_psycopg
from support.postgres import PostgresServer, start_postgres
from support.processes import until

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.ops.doctor import diagnosed
from matrixsched.worker import Worker

PASSWORD = "hunter2"
Found = dict[tuple[str, str], list[str]]


async def installed(app: App) -> None:
    """Nothing more than that."""


def found(answer: Answer) -> Found:
    """What is told and what is to be done, by verdict and check."""
    told: Found = {}
    for row in answer.json:
        told.setdefault((row["verdict"], row["check"]), []).append(f"{row['detail']} → {row['remedy']}")
    return told


def worst(told: Found) -> set[tuple[str, str]]:
    return {place for place in told if place[0] in ("fault", "warning")}


@pytest.fixture(params=["sqlite", "postgresql"])
def good_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database as it should be: the servers of other tests are careless with what they write."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/test.db"
        return
    with ExitStack() as stack:
        request.getfixturevalue("postgres_server")  # without binaries it says so
        yield stack.enter_context(start_postgres(durable=True)).create_database("good")


@pytest.mark.slow
@pytest.mark.direct("a pooler is a finding of its own, and its server is another one")
def test_a_database_that_is_set_up_well_has_no_faults(matrixsched: Matrixsched, good_url: str) -> None:
    on(good_url, installed)
    answer = matrixsched("doctor", "--database", good_url, "--json", "--thorough")
    assert answer.code == 0
    assert worst(found(answer)) == set()
    assert [list(row) for row in answer.json] == [["check", "verdict", "detail", "remedy"]] * len(answer.json)
    checks = {row["check"] for row in answer.json}
    assert {"schema", "drift", "workers", "shards", "handlers", "gates"} <= checks
    assert ("integrity" if good_url.startswith("sqlite") else "durability") in checks
    assert f"nothing is wrong. `matrixsched top --database {shlex.quote(good_url)}`" in answer.err


@pytest.mark.parametrize(
    ("url", "check", "said"),
    [
        (f"postgresql://user:{PASSWORD}@127.0.0.1:1/db", "database", "cannot connect to PostgreSQL at 127.0.0.1:1"),
        ("sqlite:///nowhere/x.db", "database", "there is no folder"),
        ("sqlite:///x.db", "database", "Run `matrixsched init` once"),
    ],
)
def test_a_database_that_cannot_be_had_is_one_fault(
    matrixsched: Matrixsched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, check: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = matrixsched("doctor", "--database", url)
    assert answer.code == 1
    assert answer.out.startswith("fault")
    assert check in answer.out
    assert said in answer.out
    assert PASSWORD not in answer.out + answer.err
    assert "1 fault, 0 warnings" in answer.err
    assert not list(tmp_path.iterdir()), "nothing is made"


def test_an_installation_that_is_not_there_is_told_with_how_to_make_it(
    matrixsched: Matrixsched, database_url: str
) -> None:
    on(database_url, installed)
    answer = matrixsched("doctor", "--database", database_url, "--installation", "second", "--json")
    assert answer.code == 1
    (told,) = found(answer)["fault", "schema"]
    assert told.endswith(f"→ Run `matrixsched init --database {shlex.quote(database_url)} --installation second` once")


def test_a_patience_that_makes_no_sense_is_refused(matrixsched: Matrixsched, tmp_path: Path) -> None:
    refused = matrixsched("doctor", "--database", f"sqlite:///{tmp_path}/x.db", "--patience", "soon")
    assert refused.code == 2
    assert "--patience" in refused.err
    assert matrixsched("doctor", "--database", "sqlite://").code == 2


# A badly set-up PostgreSQL.


@contextmanager
def somebody_waits(dsn: str) -> Iterator[tuple[int, int]]:
    """A transaction that is left open, and a session that waits for a row of it; their process ids."""
    with connect_psycopg(dsn) as holder, connect_psycopg(dsn) as waiter, connect_psycopg(dsn) as watcher:
        watcher.autocommit = True
        update = "update matrixsched.quota_settings set updated_at = now()"
        holder.execute(update)
        waiter.execute("set local statement_timeout = 0; set local lock_timeout = 0")
        waiting = threading.Thread(target=waiter.execute, args=(update,))
        waiting.start()
        question = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        pid = waiter.info.backend_pid
        until(lambda: watcher.execute(question, [pid]).fetchone() == (True,), "a session to wait for a lock")
        try:
            yield holder.info.backend_pid, pid
        finally:
            holder.rollback()
            waiting.join(10)


def spoil(dsn: str) -> None:
    with connect_psycopg(dsn, autocommit=True) as connection:
        for setting in (
            "synchronous_commit = off",
            "default_transaction_isolation = 'serializable'",
            "statement_timeout = '900ms'",
            "lock_timeout = '50ms'",
        ):
            connection.execute(
                f"do $$ begin execute format('alter database %I set {setting.replace(chr(39), chr(39) * 2)}', "
                "current_database()); end $$"
            )
        for text in (
            "alter table matrixsched.processing_queue set (autovacuum_enabled = false)",
            "alter table matrixsched.requests set unlogged",
            "alter table matrixsched.limits drop constraint limits_pool_check",
            "drop index matrixsched.processing_queue_lanes",
            "create index strange on matrixsched.requests (task_ids)",
            "update matrixsched.migrations set checksum = 'another' where number = 3",
            "alter table matrixsched.known_queues set (autovacuum_enabled = off)",
            "insert into matrixsched.known_queues select 1 from generate_series(1, 60000)",
            "delete from matrixsched.known_queues",
            "select pg_stat_force_next_flush()",
        ):
            connection.execute(text.encode())


DRIFT = (
    "drop view matrixsched.readable_actions",
    "drop index matrixsched.processing_queue_lanes",
    "alter table matrixsched.limits drop constraint limits_pool_check",
    "alter table matrixsched.limits drop constraint limits_pkey",
    "alter table matrixsched.shard_locks drop constraint shard_locks_last_lock_guid_key",
    "alter table matrixsched.requests alter column created_at drop not null",
    "alter table matrixsched.templates alter column weight drop default",
    "alter table matrixsched.requests set unlogged",
)


@pytest.mark.undistributed("one of these keys is another one there")
def test_what_is_said_to_be_typed_makes_the_tables_as_they_were(matrixsched: Matrixsched, postgres_dsn: str) -> None:
    on(postgres_dsn, installed)
    with connect_psycopg(postgres_dsn, autocommit=True) as connection:
        for text in DRIFT:
            connection.execute(text.encode())
        told = found(matrixsched("doctor", "--database", postgres_dsn, "--json"))["fault", "drift"]
        assert len(told) == len(DRIFT), "each is told once"
        for finding in told:
            (remedy,) = re.findall("→ `([^`]+;)`$", finding)
            for text in filter(None, map(str.strip, remedy.split(";"))):
                connection.execute(text.encode())
    after = found(matrixsched("doctor", "--database", postgres_dsn, "--json"))
    assert ("fault", "drift") not in after
    assert ("ok", "drift") in after


def test_a_file_gets_back_its_view_and_its_index(matrixsched: Matrixsched, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"
    on(url, installed)
    with closing(sqlite3.connect(tmp_path / "test.db")) as connection:
        connection.execute("drop view matrixsched_readable_actions")
        connection.execute("drop index matrixsched_processing_queue_due")
        told = found(matrixsched("doctor", "--database", url, "--json"))["fault", "drift"]
        assert len(told) == 2
        for finding in told:
            (remedy,) = re.findall("→ `([^`]+);`$", finding)
            connection.execute(remedy)
    assert ("ok", "drift") in found(matrixsched("doctor", "--database", url, "--json"))


def test_row_level_security_is_seen(matrixsched: Matrixsched, postgres_dsn: str) -> None:
    on(postgres_dsn, installed)
    with connect_psycopg(postgres_dsn, autocommit=True) as connection:
        connection.execute("alter table matrixsched.scheduled_actions enable row level security")
    told = found(matrixsched("doctor", "--database", postgres_dsn, "--json"))
    ((finding,),) = [told[place] for place in told if place[1] == "row security"]
    assert "row level security is on for scheduled_actions" in finding
    assert "`alter table matrixsched.scheduled_actions disable row level security;`" in finding


@pytest.mark.direct("it looks for sessions of its own at the server")
def test_all_that_is_wrong_with_a_postgresql_is_found_with_its_remedy(
    matrixsched: Matrixsched, postgres_dsn: str
) -> None:
    on(postgres_dsn, lambda app: app.schedule("mail", id="a"))
    spoil(postgres_dsn)
    with somebody_waits(postgres_dsn) as (holder, waiter):
        answer = matrixsched("doctor", "--database", postgres_dsn, "--patience", "0", "--json")
    assert answer.code == 1
    told = found(answer)
    database = postgres_dsn.rpartition("/")[2]

    (commit,) = [one for one in told["fault", "durability"] if "synchronous_commit is off" in one]
    assert commit.endswith(f"→ `alter database {database} reset synchronous_commit;`")
    (isolation,) = told["note", "isolation"]
    assert "transactions are serializable by default" in isolation
    (statement,) = told["fault", "timeouts"]
    assert f"statement_timeout is 900 ms (set for the database {database})" in statement
    assert "lock_timeout is 50 ms" in told["warning", "timeouts"][0]
    (vacuum,) = told["fault", "autovacuum"]
    assert "known_queues, processing_queue" in vacuum
    assert "`alter table matrixsched.known_queues reset (autovacuum_enabled);" in vacuum
    (bloat,) = told["warning", "bloat"]
    assert "known_queues has about 60,000 dead rows beside 0 live ones" in bloat

    assert f"session {holder} (postgres, idle in transaction) has been open" in " ".join(
        told["warning", "transactions"]
    )
    (wait,) = told["warning", "lock waits"]
    assert f"session {waiter} (postgres) has waited" in wait
    assert "quota_settings" in wait
    assert wait.endswith(f"`select pg_terminate_backend({holder});`")

    drift = "\n".join(told["fault", "drift"])
    assert (
        "`CREATE INDEX CONCURRENTLY processing_queue_lanes ON matrixsched.processing_queue USING btree (shard_id, lane"
        in drift
    )
    assert "table requests is `not logged`, not `logged`" in drift
    assert "constraint limits.limits_pool_check is missing" in drift
    assert "index requests.strange" in told["note", "drift"][0]
    assert "0003_gates was applied in another form" in told["fault", "migrations"][0]
    assert "no worker was ever here, but there is work (1)" in told["fault", "workers"][0]
    faults = sum(len(all_told) for (verdict, _), all_told in told.items() if verdict == "fault")
    assert f"{faults} faults, " in answer.err


def test_a_table_that_is_locked_keeps_nobody_waiting_for_the_doctor(
    matrixsched: Matrixsched, postgres_dsn: str
) -> None:
    on(postgres_dsn, installed)
    with connect_psycopg(postgres_dsn) as holder:
        holder.execute("lock table matrixsched.queue_dead_letters in access exclusive mode")
        told = found(matrixsched("doctor", "--database", postgres_dsn, "--patience", "0", "--json"))
        assert "locked against everybody else" in told["warning", "schema"][0]
        assert ("warning", "transactions") in told


@pytest.mark.direct("a pooler's sessions know what a role was told only when they are renewed")
def test_remedies_are_typed_as_they_stand_and_heal(matrixsched: Matrixsched, postgres_dsn: str) -> None:
    on(postgres_dsn, installed)
    spoil(postgres_dsn)
    before = found(matrixsched("doctor", "--database", postgres_dsn, "--json"))
    healed = {("fault", "timeouts"), ("warning", "timeouts"), ("fault", "autovacuum"), ("warning", "bloat")}
    assert healed < before.keys()
    typed = [told.split("`")[-2] for place in healed for told in before[place]]
    typed += [told.split("`")[-2] for told in before["fault", "drift"] if "CREATE INDEX" in told]
    with connect_psycopg(postgres_dsn, autocommit=True) as connection:
        for one in [single for text in typed for single in text.split(";") if single.strip()]:
            connection.execute(one.encode())
    after = found(matrixsched("doctor", "--database", postgres_dsn, "--json"))
    assert not healed & after.keys()
    assert "CREATE INDEX" not in " ".join(after["fault", "drift"])


@pytest.fixture
def careless(postgres_server: PostgresServer, postgres_dsn: str) -> Iterator[str]:
    """The URL of a role that may do little; the server's own are superusers."""
    role = f"careless_{uuid4().hex}"
    on(postgres_dsn, installed)
    with connect_psycopg(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"create role {role} login connection limit 5".encode())
        connection.execute(f"grant usage on schema matrixsched to {role}".encode())
        connection.execute(f"grant select on all tables in schema matrixsched to {role}".encode())
        connection.execute(f"alter role {role} set default_transaction_read_only = on".encode())
    yield postgres_dsn.replace("postgres@", f"{role}@")
    with connect_psycopg(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"drop owned by {role}; drop role {role}".encode())


@pytest.mark.direct("a pooler logs in as whom it was told to")
def test_nobody_has_to_be_a_superuser(matrixsched: Matrixsched, careless: str, postgres_dsn: str) -> None:
    with connect_psycopg(postgres_dsn) as superuser:
        superuser.execute("select 1")
        answer = matrixsched("doctor", "--database", careless, "--json")
    told, role = found(answer), careless.partition("://")[2].partition("@")[0]
    assert answer.code == 1
    assert "transactions are read-only unless they say otherwise" in told["fault", "writable"][0]
    assert f"alter role {role} reset default_transaction_read_only;" in told["fault", "writable"][0]
    (privileges,) = told["fault", "privileges"]
    assert "attempt_history (insert, update, delete)" in privileges
    assert f"`grant select, insert, update, delete on all tables in schema matrixsched to {role};`" in privileges
    assert f"`grant pg_read_all_stats to {role};`" in told["note", "hidden"][0]
    assert told["ok", "drift"]
    with connect_psycopg(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"revoke usage on schema matrixsched from {role}".encode())
    told = found(matrixsched("doctor", "--database", careless, "--json"))
    assert f"`grant usage on schema matrixsched to {role};`" in told["fault", "privileges"][0]
    assert ("fault", "fleet") in told


def test_clocks_that_differ_are_told(postgres_dsn: str) -> None:
    on(postgres_dsn, installed)

    async def diagnose() -> list[tuple[str, str]]:
        findings = await diagnosed(App(postgres_dsn, clock=ManualClock()))
        return [(one.verdict.value, one.detail) for one in findings if one.check == "clock"]

    ((verdict, detail),) = anyio.run(diagnose)
    assert verdict == "fault"
    assert "the database's clock is" in detail


# A badly set-up file of SQLite.


def test_all_that_is_wrong_with_a_file_is_found_with_its_remedy(matrixsched: Matrixsched, tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    url = f"sqlite:///{file}"
    on(url, lambda app: app.schedule("mail", id="a"))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = delete")
        connection.execute("drop index matrixsched_processing_queue_gated")
        connection.execute("alter table matrixsched_limits rename column pool to tank")
        connection.execute("update matrixsched_migrations set checksum = 'another' where number = 3")
    file.chmod(0o444)
    answer = matrixsched("doctor", "--database", url, "--patience", "0", "--thorough", "--json")
    told = found(answer)
    assert answer.code == 1
    assert "the journal mode was delete, not wal" in told["fault", "journal"][0]
    assert f"→ `chmod u+w {file}`" in told["fault", "permissions"][0]
    drift = "\n".join(told["fault", "drift"])
    made = "CREATE INDEX matrixsched_processing_queue_gated on matrixsched_processing_queue (lane, scheduled_at"
    assert made in drift
    assert "column limits.pool is missing (it was: integer not null default 0)" in drift
    assert "0003_gates was applied in another form" in told["fault", "migrations"][0]
    assert ("ok", "integrity") in told


def test_a_damaged_file_is_found_when_it_is_read_from_end_to_end(matrixsched: Matrixsched, tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    on(f"sqlite:///{file}", installed)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("create table bystander (x unique)")
        connection.execute("insert into bystander values (1), (2)")
        page = connection.execute("select rootpage from sqlite_schema where name like 'sqlite_autoindex_bystander%'")
        number, size = page.fetchone()[0], connection.execute("pragma page_size").fetchone()[0]
        connection.execute("pragma wal_checkpoint(truncate)")
    with file.open("r+b") as opened:
        opened.seek((number - 1) * size)
        opened.write(b"\x0a" + bytes(size - 1))
    answer = matrixsched("doctor", "--database", f"sqlite:///{file}", "--thorough", "--json")
    assert ("fault", "integrity") in found(answer)
    assert ("fault", "integrity") not in found(matrixsched("doctor", "--database", f"sqlite:///{file}", "--json"))


HOLD = """
import fcntl, sqlite3, sys
if sys.argv[1].endswith(".lock"):
    held = open(sys.argv[1])
    fcntl.flock(held, fcntl.LOCK_EX)
else:
    held = sqlite3.connect(sys.argv[1], isolation_level=None)
    held.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the locks of all processes")
@pytest.mark.parametrize("ending", ["", ".lock"])
def test_who_keeps_the_right_to_write_is_named(matrixsched: Matrixsched, tmp_path: Path, ending: str) -> None:
    file = tmp_path / "x.db"
    on(f"sqlite:///{file}", installed)
    command = [sys.executable, "-c", HOLD, f"{file}{ending}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            facts = anyio.run(App(f"sqlite:///{file}").store.inspect, ManualClock())
        finally:
            holder.kill()
    assert (facts.is_writer_stuck, list(facts.writers)) == (True, [holder.pid])
    told = found(matrixsched("doctor", "--database", f"sqlite:///{file}", "--json"))
    assert ("ok", "writers") in told, "the right is given back"


# The fleet.


def module(folder: Path, text: str) -> str:
    name = f"tasks_{uuid4().hex}"
    (folder / f"{name}.py").write_text(f"from matrixsched import App\n{text}")
    return name


def test_what_waits_for_a_handler_that_nobody_has_is_told(
    matrixsched: Matrixsched, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def meet(app: App) -> None:
        app.action("known")(lambda: None)
        await app.schedule("mail", id="a")
        await app.schedule("sms", id="b", delay=timedelta(days=1))
        while await Worker(app).run_due():
            pass

    on(database_url, meet)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    ask = ["doctor", "--json", "--patience", "0"]
    told = found(matrixsched(*ask, "--database", database_url))
    (parked,) = told["fault", "handlers"]
    assert "1 rows wait for the handler 'mail', which no worker that met them has" in parked
    assert '@app.action("mail")' in parked

    app = f"app = App('{database_url}')\n"
    without = found(matrixsched(*ask, f"{module(tmp_path, app)}:app"))
    assert "nor has this App" in without["fault", "handlers"][0]
    assert "'sms', which this App does not have" in without["note", "handlers"][0]
    names = "".join(f"@app.action('{name}')\ndef {name}() -> None: ...\n" for name in ("mail", "sms"))
    having = found(matrixsched(*ask, f"{module(tmp_path, app + names)}:app"))
    assert "this App has it → start a worker of this App" in having["warning", "handlers"][0]
    assert ("fault", "handlers") not in having


def test_what_was_paused_slowed_or_quarantined_is_told_with_a_command(
    matrixsched: Matrixsched, database_url: str
) -> None:
    async def close(app: App) -> None:
        await app.templates.set("promo")
        await app.templates.pause("promo")
        await app.schedule("read", {"not": "a number"}, id="bad")
        app.action("read")(_reads_a_number)
        while await Worker(app).run_due():
            pass
        await app.limits.slow_down("global", timedelta(hours=1))

    on(database_url, close)
    told = found(matrixsched("doctor", "--database", database_url, "--json"))
    gates = "\n".join(told["note", "gates"])
    assert f"`matrixsched templates resume --database {shlex.quote(database_url)} promo`" in gates
    assert "the limit 'global' is slowed down to nothing for another 59 min" in gates
    assert "1 actions are quarantined" in told["warning", "quarantine"][0]


async def _reads_a_number(payload: int) -> None: ...


def test_on_a_terminal_it_is_folded_and_the_remedy_stands_below(
    matrixsched: Matrixsched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(f"sqlite:///{tmp_path}/x.db", installed)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    out = matrixsched("doctor", "--database", f"sqlite:///{tmp_path}/x.db").out
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert max(map(len, lines)) <= 80
    (workers,) = [number for number, line in enumerate(lines) if "no worker was ever here" in line]
    assert lines[workers].split()[:2] == ["note", "workers"]
    assert any("→ when there is work: `matrixsched worker MODULE:APP`" in line for line in lines[workers:])
