"""`matrixsched queue-worker`, and the settings of queues."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from support.command import Matrixsched

from matrixsched.config import read_settings
from matrixsched.errors import ConfigurationError
from matrixsched.ops.process import WorkerOptions
from matrixsched.ops.settings import policy_of

SECOND = timedelta(seconds=1)


def test_the_settings_of_queues_are_those_of_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    given = {
        "processors": "8",
        "queue_batch_size": "100",
        "visibility_timeout": "30s",
        "queues_idle_until_told": "true",
    }
    reading = read_settings(given)
    policy = policy_of(reading)
    assert (policy.processors, policy.queue_batch_size, policy.visibility_timeout) == (8, 100, 30 * SECOND)
    assert policy.queues_idle_until_told
    options = WorkerOptions(target="a:app", settings=reading.checked(), policy=policy, command="queue-worker")
    command, target, *rest = options.for_child()
    assert (command, target) == ("queue-worker", "a:app")
    assert rest[rest.index("--queues-idle-until-told") + 1] == "true"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"processors": "1001"}, "processors is 1001: choose 0 to 1000"),
        ({"queue_batch_size": "0"}, "queue_batch_size is 0: choose 1 to 10000"),
        ({"visibility_timeout": "10ms"}, "visibility_timeout (0.01 s) must be between 1 s and 43200 s"),
        ({"queues_idle_until_told": "perhaps"}, "write true or false"),
    ],
)
def test_settings_of_queues_that_make_no_sense_are_refused(
    given: dict[str, str], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        policy_of(read_settings(given))
    assert fault in str(caught.value)


def test_a_queue_worker_needs_handlers_of_queues(
    matrixsched: Matrixsched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("only_actions.py").write_text(
        "from matrixsched import App\napp = App('sqlite:///x.db')\n@app.action('work')\nasync def work() -> None: ...\n"
    )
    done = matrixsched("queue-worker", "only_actions:app")
    assert done.code == 2
    assert "no handlers of queues: register some with @app.queues.handler(name)" in done.err
