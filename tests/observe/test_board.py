"""The board for Grafana: it shows metrics that there are, and all of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.promql import OF_THE_SCRAPE, clause_labels, faults, real_metrics, selectors

FOLDER = Path(__file__).resolve().parents[2] / "tools" / "grafana"
BOARD: dict[str, Any] = json.loads((FOLDER / "matrixsched.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
TARGETS: list[dict[str, Any]] = [target for panel in PANELS for target in panel["targets"]]
VARIABLES: dict[str, dict[str, Any]] = {one["name"]: one for one in BOARD["templating"]["list"]}
UNITS = {"s", "ops", "short", "percentunit"}


def test_the_board_is_what_its_script_makes(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    subprocess.run([sys.executable, FOLDER / "board.py", made], check=True, capture_output=True)
    is_same = made.read_text("utf-8") == (FOLDER / "matrixsched.json").read_text("utf-8")
    assert is_same, "run `python tools/grafana/board.py` and commit what it makes"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_reads_metrics_and_labels_that_there_are(panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["targets"]
    for target in panel["targets"]:
        assert faults(target["expr"]) == []
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        of_it = clause_labels(target["expr"]) or OF_THE_SCRAPE
        assert named <= of_it, "its lines are named by labels that they do not have"


def test_every_metric_has_a_panel() -> None:
    def family(name: str) -> str:
        return re.sub(r"_(total|bucket|sum|count)$", "", name)

    shown = {family(one.metric) for target in TARGETS for one in selectors(target["expr"])}
    assert {family(name) for name in real_metrics()} - shown == set()


def test_everything_shown_is_of_the_chosen_installation() -> None:
    """By its programs: all but build_info do not carry its name."""
    for target in TARGETS:
        for one in selectors(target["expr"]):
            assert {("job", "=~", "$job"), ("instance", "=~", "$instance")} <= set(one.matchers)
    assert 'installation="$installation"' in VARIABLES["instance"]["definition"]
    assert VARIABLES["datasource"]["type"] == "datasource"


def test_what_can_be_chosen_are_labels_that_there_are() -> None:
    used = set(re.findall(r"\$(?!_)\{?(\w+)", json.dumps([PANELS, BOARD["templating"]])))
    assert used == VARIABLES.keys()
    for name, variable in VARIABLES.items():
        if variable["type"] == "query":
            series, _, label = variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
            assert label == name
            assert faults(series) == []
            (selector,) = selectors(series)
            assert label in real_metrics()[selector.metric] | OF_THE_SCRAPE


def test_panels_stand_side_by_side_and_not_on_each_other() -> None:
    assert [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"] == [
        *("Overview", "Shards", "Gates", "Handlers", "Queues", "Semaphores", "Database", "Process")
    ]
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, following in pairwise(places):
        is_beside = following["y"] == one["y"] and following["x"] == one["x"] + one["w"]
        is_below = following["x"] == 0 and following["y"] == one["y"] + one["h"]
        assert is_beside or is_below


@pytest.mark.timeout(600)  # the package may have to be fetched
def test_promtool_understands_every_expression(debian_tool: Callable[[str], Path], tmp_path: Path) -> None:
    expressions = [re.sub(r"\[\$__rate_interval\]", "[5m]", target["expr"]) for target in TARGETS]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run([debian_tool("promtool"), "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
