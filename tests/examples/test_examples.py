"""Every example runs as it stands, as a process of its own, on both databases, and says what it should."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.processes import environment, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEADLINE_S = 60

SAID = {
    "plain_script.py": """\
Ada: tea (attempt 1)
Alan: cake (attempt 1)
ada is done
alan is done
grace is cancelled
""",
    "sqlalchemy_sync.py": """\
order 1: placed, one tea
order 2: placed, one unicorn
unicorn: out of stock, its order and its action are rolled back
confirm:1 is live
there is no action 'confirm:2'
order 1: confirmed, one tea
""",
    "sqlalchemy_async.py": """\
Ada signed up, 2 mails are scheduled
to Ada: welcome
user 1 left, nothing more is asked
welcome:1 is done
ask:1 is cancelled
""",
    "campaign.py": """\
sent: 50 news, 50 offers, 0 later
told to slow down: 1 time
50 of the paused one are cancelled
""",
    "labelling.py": """\
handed out: 10 tasks, 90 wait
three are labelled, three more handed out
task-11 stepped back for urgent-1; task-12 was asked, too, but somebody is in the middle of it
task-12 is labelled, urgent-2 has its place
urgent-1 is labelled, and task-11 is back
10 of 10 places are held, 87 tasks wait
""",
    "mailing/mailing.py": """\
252 mails sent, at most 100 at once; set aside: it has no address
at the second attempt: ['busy@example.org']
""",
    "fastapi_app.py": """\
201 {'id': 1}
{'item': 'tea', 'confirmed': True}
409 {'detail': 'out of stock'}
['confirm:1']
""",
}

THROUGHPUT = "throughput.py"
UNPREPARED = pytest.mark.direct("behind a pooler SQLAlchemy has to be told more than examples tell it")
WITH_SQLALCHEMY = {"sqlalchemy_sync.py", "sqlalchemy_async.py", "fastapi_app.py"}


def variables(database_url: str) -> dict[str, str]:
    """Warnings are errors for the examples, too."""
    path = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    return environment(MATRIXSCHED_DATABASE=database_url, PYTHONWARNINGS="error", PATH=path)


def run(*command: str, folder: Path, database_url: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=variables(database_url), capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("form_of_the_run")
@pytest.mark.parametrize(
    "example", [pytest.param(one, marks=UNPREPARED if one in WITH_SQLALCHEMY else ()) for one in SAID]
)
def test_an_example_says_what_it_should(example: str, database_url: str, tmp_path: Path) -> None:
    said = run(sys.executable, str(EXAMPLES / example), folder=tmp_path, database_url=database_url)
    assert said == SAID[example]


def test_the_generated_module_of_the_mailing_example_is_up_to_date(tmp_path: Path) -> None:
    files = ["contract", "generate", str(EXAMPLES / "mailing" / "queues.yaml")]
    check = ["--output", str(EXAMPLES / "mailing" / "messages.py"), "--check"]
    run(sys.executable, "-m", "matrixsched", *files, *check, folder=tmp_path, database_url="sqlite:///none.db")


def test_the_throughput_example_takes_its_time(tmp_path: Path) -> None:
    said = run(sys.executable, str(EXAMPLES / THROUGHPUT), folder=tmp_path, database_url="none")
    lines = [re.fullmatch(r"(\d+\.\d) s: (.*)", line) for line in said.splitlines()]
    assert [line[2] for line in lines if line] == [*(f"page {page}" for page in range(1, 21)), "22 calls"]
    assert lines[-1] is not None
    assert float(lines[-1][1]) >= 4.4


@pytest.mark.usefixtures("form_of_the_run")
def test_the_commands_of_the_django_example_work_when_pasted(database_url: str, tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLES / "django_project", tmp_path / "django_project")
    (block,) = re.findall(r"^```sh\n(.*?)^```", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    _, init, migrate, order, worker = [line.partition("#")[0].split() for line in block.strip().splitlines()]
    run(*init, folder=project, database_url=database_url)
    run(*migrate, folder=project, database_url=database_url)
    run(*migrate[:2], "makemigrations", "--check", folder=project, database_url=database_url)
    assert run(*order, folder=project, database_url=database_url) == (
        "tea: 201 {'id': 1}\nunicorn: 409 {'error': 'out of stock'}\norders: 1, actions: 1\n"
    )
    daemon = subprocess.Popen(
        worker, cwd=project, env=variables(database_url), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert daemon.stdout is not None
        said = daemon.stdout.readline()
    finally:
        daemon.send_signal(signal.SIGINT)
        rest, log = daemon.communicate(timeout=DEADLINE_S)
    assert said + rest == "order 1: confirmed, one tea\n", log
    assert daemon.returncode == 0, log


@UNPREPARED
@pytest.mark.usefixtures("form_of_the_run")
def test_the_fastapi_example_serves_works_and_stops_in_order(database_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "fastapi_app:api", "--port", "0"],
            cwd=tmp_path,
            env=variables(database_url),
            stderr=stderr,
            stdout=subprocess.DEVNULL,
        )
    try:
        until(lambda: "running on" in log.read_text() or server.poll() is not None, "serving")
        shop = re.search(r"running on (http://\S+)", log.read_text())
        assert shop is not None, log.read_text()
        assert httpx.post(f"{shop[1]}/orders", json={"item": "tea"}).json() == {"id": 1}
        until(lambda: httpx.get(f"{shop[1]}/orders/1").json()["confirmed"], "confirmed")
        server.send_signal(signal.SIGTERM)  # uvicorn's to handle, though a worker is inside
        server.wait(DEADLINE_S)
    finally:
        server.kill()
        server.wait()
    assert "Application shutdown complete" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_every_example_is_listed_and_run() -> None:
    listed = re.findall(r"^\| \[(\S+)\]\((\S+)\)", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE)
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix == ".py"}
    assert {name for name, link in listed if name == link} == files | {"django_project", "mailing"}
    assert files | {"mailing/mailing.py"} == SAID.keys() | {THROUGHPUT}
