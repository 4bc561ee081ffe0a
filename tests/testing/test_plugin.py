"""The pytest plugin, in runs of pytest as users have them: with anyio, with pytest-asyncio, with neither."""

import subprocess
import sys
from textwrap import dedent

import pytest

pytest_plugins = ["pytester"]

REMINDERS = """
    from datetime import timedelta
    from matrixsched import App

    app = App("postgresql://user@nowhere.invalid/production")
    said = []

    @app.action("remind")
    async def remind(text: str) -> None:
        said.append(text)
"""
ASYNC_TEST = """
    from datetime import timedelta
    import pytest
    from reminders import app, remind, said

    @pytest.mark.{mark}
    async def test_reminds(stage):
        await app.schedule(remind, "tea", id="r", delay=timedelta(days=3))
        stage.assert_scheduled(remind, id="r", at=stage.now + timedelta(days=3), payload="tea")
        assert [ran.outcome for ran in await stage.advance(timedelta(days=3))] == ["succeeded"]
        assert said.pop() == "tea"

    @pytest.mark.{mark}
    async def test_each_test_has_its_own(stage):
        stage.assert_not_scheduled()
"""
SYNC_TEST = """
    from datetime import timedelta
    import pytest
    from reminders import app, said

    def test_reminds(stage):
        app.sync.schedule("remind", "tea", id="r", delay=timedelta(days=3))
        assert len(stage.sync.advance(timedelta(days=3))) == 1
        assert said.pop() == "tea"

    @pytest.mark.matrixsched(inline=True)
    def test_reminds_at_once(stage):
        app.sync.schedule("remind", "cake")
        assert said.pop() == "cake"
"""
INI = """
    [pytest]
    matrixsched_app = reminders:app
    filterwarnings = error
    addopts = --strict-markers
"""


@pytest.fixture
def folder(pytester, monkeypatch):
    """A user's project. The App is imported from its folder, as `python -m pytest` does."""
    monkeypatch.syspath_prepend(pytester.path)
    pytester.makepyfile(reminders=dedent(REMINDERS))
    pytester.makeini(dedent(INI))
    return pytester


WITHOUT = ["-p", "no:asyncio"]
WITH = ["-o", "asyncio_default_fixture_loop_scope=function"]


def run(folder, *arguments):
    return folder.runpytest_inprocess("-p", "pytest_matrixsched", "-p", "no:cacheprovider", *(arguments or WITHOUT))


@pytest.mark.parametrize(
    ("mark", "options"),
    [("anyio", WITHOUT), ("anyio", WITH), ("asyncio", WITH), ("asyncio", [*WITH, "-o", "asyncio_mode=auto"])],
)
def test_the_fixture_serves_asynchronous_tests_whoever_runs_them(folder, mark, options):
    folder.makepyfile(dedent(ASYNC_TEST.format(mark=mark)))
    folder.makeconftest("import pytest\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n")
    run(folder, *options).assert_outcomes(passed=2)


def test_the_fixture_serves_synchronous_tests_and_takes_arguments_from_a_mark(folder):
    folder.makepyfile(dedent(SYNC_TEST))
    run(folder, *WITHOUT, "-p", "no:anyio").assert_outcomes(passed=2)


def test_a_mark_that_the_stage_does_not_understand_is_refused(folder):
    folder.makepyfile(
        "import pytest\n@pytest.mark.matrixsched(True)\ndef test_one(stage): ...\n"
        "@pytest.mark.matrixsched(inlined=True)\ndef test_two(stage): ...\n"
    )
    result = run(folder)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["*takes 1 positional argument but 2 were given", "*unexpected keyword argument 'inlined'*"]
    )


def test_the_application_can_be_chosen_by_a_fixture(folder):
    folder.makeini("[pytest]\n")
    folder.makeconftest(
        "import pytest\n@pytest.fixture\ndef matrixsched_app():\n    from reminders import app\n    return app\n"
    )
    folder.makepyfile(dedent(SYNC_TEST))
    run(folder).assert_outcomes(passed=2)


def test_a_test_without_an_application_is_told_how_to_name_it(folder):
    folder.makeini("[pytest]\n")
    folder.makepyfile("def test_it(stage): ...")
    result = run(folder)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*does not know your application: set `matrixsched_app = module:app`*"])


def test_a_wrong_name_is_answered_with_what_was_found_instead(folder):
    folder.makeini(dedent(INI).replace("reminders:app", "reminders:application"))
    folder.makepyfile("def test_it(stage): ...")
    result = run(folder)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*module 'reminders' has no 'application'; found instead: reminders:app*"])


def test_the_fixtures_and_the_mark_are_listed(folder):
    run(folder, *WITHOUT, "--markers").stdout.fnmatch_lines(["@pytest.mark.matrixsched(at, url, inline, *"])
    run(folder, *WITHOUT, "--fixtures").stdout.fnmatch_lines(["stage -- *", "*on a fresh database in memory*"])


def test_a_project_that_does_not_use_it_pays_nothing():
    script = "import sys, pytest_matrixsched; print([name for name in sys.modules if name.startswith('matrixsched')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
