"""The alert rules: they read metrics that there are, do what their own tests say, and lead to the run-book."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from support.promql import faults, real_metrics, selectors

from matrixsched import App
from matrixsched.observe import Metrics
from matrixsched.rules.action import Outcome
from matrixsched.rules.gates import Gate

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tools" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"]: frozenset({"installation"}) for rule in RULES if "record" in rule}
TESTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
GOOD_DAY, *BAD_DAYS = TESTS


def anchors(document: Path) -> set[str]:
    """As a forge makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.timeout(600)  # the package may have to be fetched
@pytest.mark.parametrize("command", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]])
def test_promtool_agrees(debian_tool: Callable[[str], Path], command: list[str]) -> None:
    done = subprocess.run([debian_tool("promtool"), *command], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_reads_metrics_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"], RECORDED) == []


def test_outcomes_and_gates_are_called_as_they_are() -> None:
    named = {pair for rule in RULES for one in selectors(rule["expr"]) for pair in one.values}
    outcomes = {value for label, value in named if label == "outcome"}
    gates = {value for label, value in named if label == "gate"}
    assert outcomes
    assert outcomes <= set(Outcome)
    assert {*Gate, "open"} == gates, "a gate that no rule knows would hold actions unseen"


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_how_bad_and_where_to_read_on(name: str) -> None:
    alert = ALERTS[name]
    assert alert["for"]
    assert alert["labels"] in ({"severity": "warning"}, {"severity": "critical"})
    told = alert["annotations"]
    assert told["summary"]
    assert told["description"].endswith((".", "?"))
    shown = set(re.findall(r"\$labels\.(\w+)", told["summary"] + told["description"]))
    assert shown <= {
        "installation",
        "instance",
        *re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", alert["expr"]))),
    }
    document, _, anchor = told["runbook_url"].partition("#")
    assert anchor in anchors(ROOT / document)


def test_every_alert_is_told_on_some_bad_day_and_none_on_a_good_one() -> None:
    told = {
        name
        for day in BAD_DAYS
        for test in day["promql_expr_test"]
        for sample in test["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    assert told == ALERTS.keys()
    assert [test["exp_samples"] for test in GOOD_DAY["promql_expr_test"]] == [[], [], []]


def test_the_good_day_has_every_metric_that_a_rule_reads() -> None:
    """Or silence would prove nothing."""
    there = {name for one in GOOD_DAY["input_series"] for name in re.findall(r"^\w+", one["series"])}
    read = {one.metric for rule in RULES for one in selectors(rule["expr"])} - RECORDED.keys()
    assert read == there


def test_series_of_the_tests_have_the_labels_of_real_ones() -> None:
    real = real_metrics()
    for day in TESTS:
        for one in day["input_series"]:
            (selector,) = selectors(one["series"].replace(", ", ","))
            assert {label for label, _, _ in selector.matchers} == real[selector.metric] | {"job", "instance"}


def test_what_is_called_real_is_what_is_scraped() -> None:
    registry = CollectorRegistry()
    Metrics(App("sqlite:///never-opened.db"), registry=registry)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", generate_latest(registry).decode(), re.MULTILINE))
    histograms = {name for name, kind in types.items() if kind == "histogram"}
    samples = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    scraped = {name for name in types if not name.endswith("_created")} | samples
    assert scraped - real_metrics().keys() == set()
