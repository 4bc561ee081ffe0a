"""What users install: the wheel, in an environment of its own, away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Installation:
    """A virtual environment that holds the wheel and its dependencies, and an empty folder to work in."""

    python: Path
    folder: Path

    def run_script(self, text: str, *arguments: str) -> str:
        """Run a script's text as a user would, and return what it prints; it must not fail."""
        script = self.folder / "script.py"
        script.write_text(text)
        return succeed([str(self.python), "-W", "error", str(script), *arguments], cwd=self.folder)


def succeed(command: list[str], cwd: Path) -> str:
    # Nothing of this process's own Python may leak into the other one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


# For the whole session: tests that are run on both databases are sorted by them, and a module would be entered twice.
@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    succeed([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)], cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    environment = tmp_path_factory.mktemp("installation") / "venv"
    outside = tmp_path_factory.mktemp("outside")
    succeed([sys.executable, "-m", "venv", str(environment)], cwd=outside)
    python = environment / "bin" / "python"
    succeed([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], cwd=outside)
    return Installation(python, outside)


@pytest.mark.parametrize(
    "name",
    [
        "matrixsched/py.typed",
        "matrixsched/_schema/README.md",
        "matrixsched/_schema/queue-contract.schema.json",
        "matrixsched/ops/web/templates/base.html",
        "matrixsched/ops/web/static/style.css",
        "matrixsched/ops/web/static/live.js",
    ],
)
def test_the_wheel_carries(wheel: Path, name: str) -> None:
    assert name in zipfile.ZipFile(wheel).namelist()


def test_the_wheel_tells_pytest_of_its_plugin(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (entries,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
    assert "[pytest11]\npytest_matrixsched = pytest_matrixsched" in archive.read(entries).decode()


def test_the_wheel_carries_no_tests_or_tools(wheel: Path) -> None:
    places = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {place for place in places if not place.endswith(".dist-info")} == {"matrixsched", "pytest_matrixsched.py"}


def test_the_installed_package_is_imported_from_outside_the_checkout(installation: Installation) -> None:
    printed = installation.run_script("import matrixsched; print(matrixsched.__version__, matrixsched.__file__)")
    version, file = printed.split(maxsplit=1)
    assert version
    assert Path(file.strip()).is_relative_to(installation.python.parent.parent)


SCHEDULE_AND_RUN = """
import sys
import anyio
from matrixsched import App
from matrixsched.worker import Worker

app = App(sys.argv[1])

@app.action("greet")
async def greet(name: str) -> None:
    print(f"hello {name}")

async def main() -> None:
    await app.init(shards=2)
    async with app:
        await app.schedule(greet, "wheel", id="g")
        made = await Worker(app).run_due()
        print(made, (await app.get("g")).status.state)

anyio.run(main)
"""


@pytest.mark.usefixtures("form_of_the_run")
def test_the_installed_package_schedules_and_runs_an_action(installation: Installation, database_url: str) -> None:
    assert installation.run_script(SCHEDULE_AND_RUN, database_url) == "hello wheel\n1 done\n"


def test_the_installed_command_makes_an_installation(
    installation: Installation, database_url: str, form_option: list[str]
) -> None:
    command = str(installation.python.parent / "matrixsched")
    succeed([command, "init", "--database", database_url, *form_option], cwd=installation.folder)
    listed = succeed([command, "shards", "list", "--json", "--database", database_url], cwd=installation.folder)
    assert len(json.loads(listed)) == 64
