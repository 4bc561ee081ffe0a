"""The page on testing works when its files are pasted into a project."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from matrixsched.testing import stage

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parent.parent.parent / "docs" / "testing.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILES = {block.partition("\n")[0].removeprefix("# "): block for kind, block in BLOCKS if kind in ("python", "toml")}


@pytest.mark.timeout(120)
def test_every_file_of_the_page_does_what_it_says(pytester, monkeypatch, database_url):
    assert len(FILES) == len([kind for kind, _ in BLOCKS if kind != "text"]), "every block is a file of its own"
    monkeypatch.syspath_prepend(pytester.path)
    monkeypatch.setenv("TEST_DATABASE_URL", database_url)
    for name, content in FILES.items():
        (pytester.path / name).write_text(content, "utf-8")
    result = pytester.runpytest_inprocess(
        *("-p", "pytest_matrixsched", "-p", "no:cacheprovider", "-W", "error"),
        *("-o", "asyncio_default_fixture_loop_scope=function"),
    )
    result.assert_outcomes(passed=sum(len(re.findall(r"def test_", content)) for content in FILES.values()))


@pytest.mark.anyio
async def test_the_message_on_the_page_is_what_a_failing_assert_says():
    program: dict[str, object] = {"__name__": "reminders"}
    exec(FILES["reminders.py"].replace("postgresql://app@db/production", "sqlite://"), program)
    (message,) = [block for kind, block in BLOCKS if kind == "text"]
    with stage(program["app"]) as on:
        await program["sign_up"](7)
        with pytest.raises(AssertionError) as raised:
            on.assert_scheduled("remind", id="welcome:7", at=on.now + timedelta(days=2))
    assert f"{raised.value}\n" == message
