"""A worker takes its settings from the file, and its child processes take the same."""

from __future__ import annotations

import signal
from pathlib import Path

from support.processes import scene, until

from matrixsched import App
from matrixsched.config import read_settings
from matrixsched.ops.process import WorkerOptions
from matrixsched.ops.settings import OF_THE_WORKER, policy_of


def test_a_worker_runs_as_the_file_says(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    App(url).sync.init(shards=4)
    file = tmp_path / "settings.toml"
    file.write_text("processes = 2\nconcurrency = 7\nlog_format = 'json'\nmetrics_port = 0\nstop_grace = '2s'\n")
    with scene(url, tmp_path) as stage:
        worker = stage.start_worker("--config", str(file), leases=())
        until(lambda: worker.said().count('"worker started"') == 2, f"two processes started: {worker.said()}")
        assert worker.said().count('"concurrency": 7') == 2
        assert worker.said().count("serving /metrics") == 1, "the supervisor serves the metrics of all"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_a_worker_whose_settings_contradict_each_other_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("heartbeat = '9s'\nhold_max = '9s'\n")
    with scene(f"sqlite:///{tmp_path}/x.db", tmp_path) as stage:
        worker = stage.start_worker("--config", str(file), leases=())
        assert worker.exit_code() == 2
        assert f"(heartbeat from {file})" in worker.said()
        assert f"(hold_max from {file})" in worker.said()
        assert worker.said().count("\n") == 1


def test_a_child_is_told_every_setting(tmp_path: Path) -> None:
    given = {
        "concurrency": "7",
        "processes": "3",
        "shard_lease": "2s",
        "heartbeat": "333ms",
        "metrics_port": "9100",
        "log_level": "debug",
        "leaked_max": "0.25",
        "keep_done": "0",
    }
    reading = read_settings(given)
    options = WorkerOptions(target="tasks:app", settings=reading.checked(), policy=policy_of(reading))
    command, target, *rest = options.for_child()
    assert (command, target) == ("worker", "tasks:app")
    names = [flag.removeprefix("--").replace("-", "_") for flag in rest[::2]]
    child = read_settings(dict(zip(names, rest[1::2], strict=True))).checked()
    different = {name for name in OF_THE_WORKER if getattr(child, name) != getattr(options.settings, name)}
    assert different == {"processes", "metrics_port"}
    assert (child.processes, child.metrics_port) == (1, None)
