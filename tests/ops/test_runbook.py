"""The run-book: what it tells people to type can be typed, and what it names is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from support.promql import real_metrics
from typer.main import get_command

from matrixsched.ops.cli import cli

ROOT = Path(__file__).resolve().parents[2]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text("utf-8")
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
CHAPTERS = re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]

BLOCKS = "\n".join(re.findall(r"^```sh\n(.*?)^```", RUNBOOK, re.MULTILINE | re.DOTALL))
PROSE = re.sub(r"^```.*?^```", "", RUNBOOK, flags=re.MULTILINE | re.DOTALL)
TO_TYPE = sorted({line for line in BLOCKS.splitlines() if line.startswith("matrixsched ")})
NAMED = sorted({" ".join(one.split()) for one in re.findall(r"`(matrixsched [^`]+)`", PROSE)})
"""In sentences, with their options or without."""


def parse(line: str, *, whole: bool) -> None:
    """Raise what the command line would say to it; unless it is the `whole` line, a name alone is enough."""
    _, *words = shlex.split(line, comments=True)
    found: Any = get_command(cli)
    while words and hasattr(found, "commands"):
        name, *words = words
        found = found.commands[name]
    if whole or words:
        found.make_context(found.name, words)


@pytest.mark.parametrize("line", TO_TYPE)
def test_a_command_can_be_typed_as_it_stands(line: str) -> None:
    parse(line, whole=True)


@pytest.mark.parametrize("line", NAMED)
def test_a_command_in_a_sentence_is_there(line: str) -> None:
    parse(line, whole=False)


@pytest.mark.parametrize(
    "line",
    [
        "matrixsched ponder --database sqlite:///file.db",
        "matrixsched shards unlock 3",
        "matrixsched shards release",
        "matrixsched shards release three",
        "matrixsched shards release 3 --force",
    ],
)
def test_a_command_that_cannot_be_typed_is_noticed(line: str) -> None:
    with pytest.raises((KeyError, UsageError)):
        parse(line, whole=True)


def test_there_are_ten_things_each_with_all_that_is_to_be_known() -> None:
    titles = [chapter.partition("\n")[0] for chapter in CHAPTERS]
    assert [title.partition(".")[0] for title in titles] == [str(number) for number in range(1, 11)]
    for chapter in CHAPTERS:
        for part in ("**What one sees.**", "**Why.**", "**What to type.**", "**It is over when**"):
            assert chapter.count(part) == 1, f"{part} in {chapter[:40]!r}"


def test_every_alert_stands_in_the_table_beside_its_part() -> None:
    rules = [
        rule
        for group in yaml.safe_load((ROOT / "tools" / "prometheus" / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    told = {
        name: anchor
        for names, anchor in re.findall(r"^\| ([\w, ]+) \| \[\d+\]\(#([\w-]+)\) \|$", RUNBOOK, re.MULTILINE)
        for name in names.split(", ")
    }
    leads_to = {rule["alert"].removeprefix("Matrixsched"): rule["annotations"]["runbook_url"] for rule in rules}
    assert {name: f"docs/runbook.md#{anchor}" for name, anchor in told.items()} == leads_to
    assert {f"Matrixsched{name}" for name in told} >= set(re.findall(r"`(Matrixsched\w+)`", RUNBOOK))


def test_every_metric_and_link_it_names_is_there() -> None:
    named = set(re.findall(r"\bmatrixsched_[a-z_]+", re.sub(r"```sql.*?```", "", RUNBOOK, flags=re.DOTALL)))
    assert named
    assert named <= real_metrics().keys()
    for target in re.findall(r"\]\(([^)#:]+)\)", RUNBOOK):
        assert (ROOT / "docs" / target).exists()
