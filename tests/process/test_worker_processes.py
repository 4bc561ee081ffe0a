"""Real processes, real signals, real time. Whatever takes a moment is waited for, never slept for."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.postgres import PostgresServer
from support.processes import (
    ATTEMPT_LEASE_S,
    Scene,
    WorkerUnderTest,
    environment,
    scene,
    until,
)

from matrixsched import Action, App, State, call

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """A database with an installation, and nobody at work yet."""
    App(database_url).sync.init(shards=8)
    with scene(database_url, tmp_path) as playing:
        yield playing


def schedule(url: str, count: int, handler: str = "sleep", seconds: float = 0.2) -> list[str]:
    app = App(url)
    ids = [f"{handler}:{number}" for number in range(count)]
    with app.sync:
        app.sync.schedule_many(call(handler, seconds, id=one) for one in ids)
    return ids


def actions(url: str) -> list[Action]:
    app = App(url)
    with app.sync:
        return app.sync.list(limit=1000)


def test_actions_of_a_killed_worker_are_taken_over_within_the_lease_and_a_second(stage: Scene) -> None:
    victim, heir = stage.start_worker("--concurrency", "20"), stage.start_worker("--concurrency", "20")
    victim.wait_until_started(), heir.wait_until_started()
    ids = schedule(stage.url, 200)
    until(lambda: len(stage.look().under_way(victim.pid)) >= 5 and stage.done() >= 20, "both are at work")

    killed_at = time.time()
    victim.process.kill()
    until(lambda: stage.done() == len(ids), "all are done")

    last_begun = max(begun for one in ids for begun, _ in stage.account.begun_at[one])
    assert last_begun - killed_at <= ATTEMPT_LEASE_S + 1
    until(lambda: all(one.status.state is State.DONE for one in actions(stage.url)), "all are recorded")
    recorded = actions(stage.url)
    assert len(recorded) == 200
    assert {(one.status.succeeded, one.status.failed) for one in recorded} == {(1, 0)}
    assert any(one.status.interrupted for one in recorded)


def test_a_worker_that_was_stopped_for_three_leases_writes_nothing_over_its_heir(stage: Scene) -> None:
    sleeper = stage.start_worker("--concurrency", "20", "--metrics-port", "0")
    heir = stage.start_worker("--concurrency", "20")
    sleeper.wait_until_started(), heir.wait_until_started()
    ids = schedule(stage.url, 150)
    stop_with_work_in_hand(stage, sleeper)

    stopped_at = time.monotonic()
    orphans = stage.account.under_way(sleeper.pid)
    until(lambda: time.monotonic() - stopped_at > 3 * ATTEMPT_LEASE_S, "three leases have passed")
    until(lambda: stage.done() == len(ids), "the heir has done all")
    before = {one.id: one for one in actions(stage.url)}
    sleeper.process.send_signal(signal.SIGCONT)
    until(sleeper.has_said("attempts lost"), "the worker that was stopped knows it")

    after = {one.id: one for one in actions(stage.url)}
    assert after == before
    assert {(one.status.succeeded, one.status.failed) for one in after.values()} == {(1, 0)}
    assert all(after[one].status.interrupted >= 1 for one in orphans)
    held = "matrixsched_attempts_held 0.0"
    until(lambda: held in answer(sleeper.port(), "/metrics")[1], "its slots are free again", within_s=5)


def stop_with_work_in_hand(stage: Scene, worker: WorkerUnderTest) -> None:
    """SIGSTOP while handlers are under way and, on SQLite, while it does not have the one lock of all writers."""
    for _ in range(100):
        until(lambda: len(stage.look().under_way(worker.pid)) >= 5, "it has work in hand")
        worker.process.send_signal(signal.SIGSTOP)
        until(lambda: thread_states(worker.pid) == {"T"}, "it is stopped")
        if len(stage.look().under_way(worker.pid)) >= 5 and others_can_write(stage.url):
            return
        worker.process.send_signal(signal.SIGCONT)
    raise AssertionError("it was never stopped with work in hand")


def thread_states(pid: int) -> set[str]:
    """Of all its threads: one that still waits for the lock of all writers may be given it before it stops."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def others_can_write(url: str) -> bool:
    if not url.startswith("sqlite"):
        return True
    lock_file = os.open(url.removeprefix("sqlite:///") + ".lock", os.O_RDONLY)
    deadline = time.monotonic() + 0.5
    try:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.002)
        return False
    finally:
        os.close(lock_file)


def test_sigterm_lets_handlers_finish_and_gives_the_rest_back(stage: Scene) -> None:
    worker = stage.start_worker("--concurrency", "5").wait_until_started()
    schedule(stage.url, 30, seconds=0.5)
    until(lambda: len(stage.look().under_way(worker.pid)) == 5, "all slots are in use")

    worker.process.terminate()
    assert worker.exit_code() == 0, worker.said()

    stage.look()
    assert not stage.account.under_way(worker.pid)
    left = [one for one in actions(stage.url) if one.status.state is State.LIVE]
    assert len(left) == 30 - len(stage.account.done) > 0
    assert {(one.status.running, one.status.interrupted) for one in left} == {(False, 0)}


def test_a_second_signal_makes_running_actions_due_at_once(stage: Scene) -> None:
    worker = stage.start_worker().wait_until_started()
    ids = schedule(stage.url, 3, seconds=50)
    until(lambda: len(stage.look().under_way(worker.pid)) == 3, "all are under way")

    worker.process.send_signal(signal.SIGINT)
    until(worker.has_said("stopping: handlers"), "the first signal was heard")
    worker.process.terminate()
    assert worker.exit_code(within_s=10) == 0, worker.said()

    stopped = actions(stage.url)
    assert {one.id for one in stopped} == set(ids)
    assert {(one.status.state, one.status.running) for one in stopped} == {(State.LIVE, False)}
    assert {one.status.interrupted for one in stopped} == {1}


def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"
    App(url).sync.init(shards=8)
    with scene(url, tmp_path) as stage:
        worker = stage.start_worker("--stop-grace", "0").wait_until_started()
        schedule(url, 1, "stubborn", seconds=50)
        until(lambda: stage.look().under_way(worker.pid), "it is under way")
        worker.process.terminate()
        assert worker.exit_code(within_s=15) == 1, worker.said()
        assert "leaving without handlers" in worker.said()


def test_the_supervisor_restarts_a_killed_child_and_stops_all(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"
    App(url).sync.init(shards=8)
    with scene(url, tmp_path) as stage:
        supervisor = stage.start_worker("--processes", "2", "--metrics-port", "0")
        until(lambda: len(supervisor.started_pids()) == 2, "both children work")
        port = supervisor.port()
        until(lambda: answer(port, "/readyz") == (200, "ready: 2 processes\n"), "both have looked for work")

        os.kill(supervisor.started_pids()[0], signal.SIGKILL)
        until(lambda: answer(port, "/readyz")[0] == 503, "the death is seen")
        until(lambda: len(supervisor.started_pids()) == 3, "another child works")
        until(lambda: answer(port, "/readyz")[0] == 200, "it has looked for work")
        ids = schedule(url, 20, seconds=0.0)
        until(lambda: stage.done() == len(ids), "the children work")
        counted = 'matrixsched_attempts_total{handler="sleep",outcome="succeeded"} 20.0'
        until(lambda: counted in answer(port, "/metrics")[1], "the attempts of both are added up")
        # The dead one's gauge does not count any more.
        assert "matrixsched_worker_slots 200.0" in answer(port, "/metrics")[1]
        sampled = "\nmatrixsched_due_actions "
        until(lambda: sampled in answer(port, "/metrics")[1], "what is due was counted, for which there is time")

        supervisor.process.terminate()
        assert supervisor.exit_code() == 0, supervisor.said()
        assert not [pid for pid in supervisor.started_pids() if Path(f"/proc/{pid}").exists()]


def test_the_supervisor_is_ready_while_its_children_reach_the_database(tmp_path: Path) -> None:
    folder = tmp_path / "mounted-later"
    url = f"sqlite:///{folder}/test.db"
    with scene(url, tmp_path) as stage:
        supervisor = stage.start_worker("--processes", "2", "--metrics-port", "0")
        until(lambda: supervisor.said().count("waiting for the database") >= 2, "both children wait")
        status, why = answer(supervisor.port(), "/readyz")
        assert (status, why.partition(": ")[2]) == (503, "waiting for the database\n")

        (tmp_path / "ready").mkdir()
        App(f"sqlite:///{tmp_path}/ready/test.db").sync.init(shards=8)
        (tmp_path / "ready").rename(folder)
        until(lambda: answer(supervisor.port(), "/readyz")[0] == 200, "they work")

        schedule(url, 1, seconds=8)
        until(lambda: stage.look().begun_at, "a handler is under way")
        supervisor.process.terminate()
        until(lambda: answer(supervisor.port(), "/readyz") == (503, "stopping\n"), "it says so", within_s=6)
        assert supervisor.exit_code() == 0, supervisor.said()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
def test_children_stop_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"
    App(url).sync.init(shards=8)
    with scene(url, tmp_path) as stage:
        supervisor = stage.start_worker("--processes", "2")
        until(lambda: len(supervisor.started_pids()) == 2, "both children work")
        supervisor.process.kill()
        until(lambda: supervisor.said().count("worker stopped") == 2, "both children have stopped in good order")


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_ten_processes_may_init_at_once(database_url: str, form_option: list[str]) -> None:
    arguments = ["--database", database_url, "--json", *form_option]
    command = [sys.executable, "-m", "support.crowd", "10", "command", "init", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=50)
    assert done.returncode == 0, done.stderr
    applied = [bool(one["applied"]) for one in documents(done.stdout)]
    assert sorted(applied) == [False] * 9 + [True]


def documents(text: str) -> list[Any]:
    """JSON documents that follow each other."""
    found = []
    while text := text.lstrip():
        document, end = json.JSONDecoder().raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def test_sixteen_processes_share_one_sqlite_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"
    App(url).sync.init(shards=16)
    command = [sys.executable, "-m", "support.crowd", "16", "live", url, "6"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=50)
    assert done.returncode == 0, done.stderr
    assert "locked" not in done.stderr
    counts = documents(done.stdout)
    assert len(counts) == 16
    assert sum(one["failed_steps"] for one in counts) == 0
    for what in ("scheduled", "ran"):
        shares = sorted(one[what] for one in counts)
        assert shares[0] >= sum(shares) / 16 / 4, (what, shares)


@pytest.mark.direct("a pooler hands out sessions that ended with the server")
def test_a_worker_outlives_a_restart_of_postgresql(
    postgres_server: PostgresServer, postgres_dsn: str, tmp_path: Path
) -> None:
    if not postgres_server.restartable:
        pytest.skip("the server was given to us: it is not ours to restart")
    App(postgres_dsn).sync.init(shards=8)
    with scene(postgres_dsn, tmp_path) as stage:
        worker = stage.start_worker("--concurrency", "10").wait_until_started()
        before = schedule(postgres_dsn, 100)
        until(lambda: stage.done() >= 20, "it is at work")
        postgres_server.restart("immediate")
        after = schedule(postgres_dsn, 20, "stubborn")
        until(lambda: stage.done() == len(before) + len(after), "all are done")
        until(lambda: all(one.status.state is State.DONE for one in actions(postgres_dsn)), "all are recorded")
        assert worker.process.poll() is None
        worker.process.terminate()
        assert worker.exit_code() == 0, worker.said()


@pytest.mark.direct("a pooler lets clients wait while its server is away")
def test_a_worker_waits_for_a_database_that_is_not_there_yet(
    postgres_server: PostgresServer, postgres_dsn: str, tmp_path: Path
) -> None:
    if not postgres_server.restartable or postgres_server.process is None:
        pytest.skip("the server was given to us: it is not ours to restart")
    App(postgres_dsn).sync.init(shards=8)
    ids = schedule(postgres_dsn, 3)
    with scene(postgres_dsn, tmp_path) as stage:
        postgres_server.process.stop("fast")
        try:
            worker, impatient = stage.start_worker(), stage.start_worker()
            until(worker.has_said("waiting for the database"), "it waits")
            until(impatient.has_said("waiting for the database"), "the other waits too")
            impatient.process.terminate()
            assert impatient.exit_code(within_s=10) == 0
        finally:
            postgres_server.process.start()
        until(lambda: stage.done() == len(ids), "it works")


def test_a_worker_does_not_wait_for_a_schema(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/test.db"
    App(url, installation="another").sync.init(shards=8)
    with scene(url, tmp_path) as stage:
        for options in ([], ["--processes", "2"]):
            worker = stage.start_worker(*options)
            assert worker.exit_code() == 2
            assert "Run `matrixsched init` once." in worker.said()
            assert "starting another" not in worker.said()
