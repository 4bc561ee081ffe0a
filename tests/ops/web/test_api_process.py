"""`matrixsched serve` as an operator starts it, asked over a real connection."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.processes import environment, until
from support.web_api import OPERATOR, VIEWER, bearer

from matrixsched import App

HERE = re.compile(r"is at (http://\S+)/;")


@contextmanager
def serving(url: str, folder: Path, *options: str, **variables: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = folder / "serve.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "matrixsched", "serve", "--database", url, *options],
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            env=environment(**variables),
        )
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_programs_of_any_language_schedule_over_a_connection(
    database_url: str, tmp_path: Path, told: signal.Signals
) -> None:
    App(database_url).sync.init(shards=4)
    tokens = {"MATRIXSCHED_WEB_VIEWER_TOKEN": VIEWER, "MATRIXSCHED_WEB_OPERATOR_TOKEN": OPERATOR}
    with serving(database_url, tmp_path, "--web-port", "0", **tokens) as (process, log):
        until(lambda: HERE.search(log.read_text()) or process.poll() is not None, "it listens")
        here = HERE.search(log.read_text())
        assert here is not None, log.read_text()
        with httpx.Client(base_url=f"{here[1]}/api/v1", timeout=30) as client:
            made = client.put("/actions/a%2Fb", json={"handler": "remind", "delay": "1h"}, headers=bearer(OPERATOR))
            assert made.status_code == 201
            read = client.get("/actions/a%2Fb", headers=bearer(VIEWER))
            assert (read.json()["id"], read.headers["etag"]) == ("a/b", made.headers["etag"])
            assert client.get("/actions").status_code == 401
            assert client.post("/actions/a%2Fb/cancel", headers=bearer(VIEWER)).status_code == 403
            assert "server" not in read.headers
            with httpx.Client() as other:
                assert other.get(f"{here[1]}/healthz").text == "alive\n"
        process.send_signal(told)
        assert process.wait(30) == 0, log.read_text()
        said = log.read_text()
        assert VIEWER not in said
        assert OPERATOR not in said


def test_nobody_beyond_this_machine_is_answered_without_a_token(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with serving(url, tmp_path, "--web-host", "0.0.0.0", "--web-port", "0") as (process, log):
        assert process.wait(30) == 2
        assert "MATRIXSCHED_WEB_OPERATOR_TOKEN" in log.read_text()
        assert log.read_text().count("\n") == 1


def test_a_port_that_is_taken_is_told_with_the_way_out(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    App(url).sync.init(shards=4)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with serving(url, tmp_path, "--web-port", port) as (process, log):
            assert process.wait(30) == 2
            assert f"port {port} of 127.0.0.1" in log.read_text()
            assert "choose another web_port" in log.read_text()
