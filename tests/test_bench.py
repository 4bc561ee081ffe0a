"""The benchmark tool: that it runs every workload, says what it measured, and never passes a broken promise."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent

EVERYWHERE = {
    "commits",
    "schedule-1",
    "schedule-32",
    "schedule-256",
    "schedule-many",
    "drain",
    "drain-2",
    "drain-staged",
    "drain-future-100k",
    "drain-future",
    "memory",
    "limit-fleet",
    "balance-small",
    "semaphores-idle",
    "queue-put",
    "queue-drain",
    "latency",
    "lateness",
    "idle",
    "idle-16",
    "idle-256",
}
WORKLOADS = {
    "sqlite": EVERYWHERE,
    "postgresql": EVERYWHERE
    | {
        "drain-future-10m",
        "churn",
        "plan",
        "drain-template",
        "drain-held",
        "drain-keys",
        "balance",
        "queue-future",
        "queue-floor",
        "latency-floor",
        "lateness-floor",
        "web-api",
        "web-bulk",
        "web-pages",
        "drain-watched",
        "floor",
    },
}
RATIOS_EVERYWHERE = {
    "drain-2": "drain rate",
    "drain-staged": "drain rate",
}
RATIOS = {
    "sqlite": RATIOS_EVERYWHERE,
    "postgresql": RATIOS_EVERYWHERE
    | {
        "schedule-many": "floor schedule",
        "drain": "floor drain",
        "drain-template": "drain rate",
        "drain-held": "drain-template rate",
        "drain-keys": "drain rate",
        "balance": "balance-small p50",
        "queue-drain": "queue-floor rate",
        "latency": "latency-floor p50",
        "lateness": "lateness-floor p50",
        "queue-future": "queue-drain rate",
    },
}
SVG = "http://www.w3.org/2000/svg"
ON_SQLITE = ("--database", "sqlite", "--scale", "tiny")
UNITS = {"idle transactions": "/s", "idle cpu": "%", "memory peak": "MB", "memory over start": "MB"}


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench.py"), *arguments], capture_output=True, text=True
    )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("bench")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.direct("it measures a server")
@pytest.mark.undistributed("the floors below its figures are those of the usual form")
@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
def test_every_workload_runs_and_writes_its_figures(database: str, postgres_dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    sized = ("--scale", "tiny", "--rounds", "1", "--shards", "4", "--long")
    files = ("--json", str(file), "--chart", str(tmp_path / "chart.svg"))
    done = run_bench(*sized, "--database", database, "--url", postgres_dsn, *files)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert report["violations"] == []
    assert report["left_out"] == {}
    assert {target["verdict"] for target in report["targets"]} <= {"below gate", "gate", "aim", "not measured"}
    assert "Figures to reach" in done.stdout
    assert "This is a look, no verdict" in done.stdout
    assert "schedule" in texts_of((tmp_path / "chart.svg").read_text())
    assert {"cpus", "python", "uvloop", database} <= report["machine"].keys()
    assert ("not of durable writes" in done.stderr) != report["machine"]["durable"], "the tests' server may not flush"
    figures = report["figures"]
    assert {(figure["workload"], figure["database"]) for figure in figures} == {
        (name, database) for name in WORKLOADS[database]
    }
    for figure in figures:
        assert figure["min"] <= figure["median"] <= figure["max"]
        assert len(figure["values"]) == 1
        assert figure["ratio_to"] == RATIOS[database].get(figure["workload"])
        name = f"{figure['workload']} {figure['figure']}"
        assert figure["unit"] == UNITS.get(name, figure["unit"])
    for name in WORKLOADS[database]:
        assert name in done.stdout, "the table names every workload"
        assert name in done.stderr, "so does the progress"


def test_an_unknown_workload_is_refused_with_the_names_of_all() -> None:
    done = run_bench("--workloads", "drain,dream")
    assert done.returncode == 2
    assert "dream: choose from commits, schedule-1," in done.stderr


def test_a_broken_promise_makes_the_run_fail(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring = importlib.import_module("benchmarks.measuring")
    lossy = measuring.Measured([measuring.Figure("rate", 1.0, "/s")], ["1 of 2 actions were never run"])
    add_workload(monkeypatch, "lossy", lambda run: lossy)
    assert bench.main([*ON_SQLITE, "--workloads", "lossy", "--rounds", "1"]) == 1
    assert "VIOLATION lossy on sqlite: 1 of 2 actions were never run" in capsys.readouterr().err


def test_a_peer_that_cannot_be_installed_is_told_of_and_left_out(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environments = importlib.import_module("benchmarks.peers.environments")
    monkeypatch.setattr(environments, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    peer = environments.Peer("nobody", ("nobody@1.0.0",), "with_nobody.mjs")
    add_workload(monkeypatch, "nobody-drain", lambda run: pytest.fail("it was run"), peer=peer)
    add_workload(monkeypatch, "ours", lambda run: one_figure(1.0))
    assert bench.main([*ON_SQLITE, "--workloads", "nobody-drain,ours", "--json", str(tmp_path / "figures.json")]) == 0
    assert "bench: nobody is left out: npm is not installed" in capsys.readouterr().err
    report = json.loads((tmp_path / "figures.json").read_text())
    assert [figure["workload"] for figure in report["figures"]] == ["ours"]
    assert report["left_out"] == {"nobody-drain": "npm is not installed"}


def test_a_peer_that_fails_in_one_round_is_left_out_of_all(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environments = importlib.import_module("benchmarks.peers.environments")
    answers = iter([one_figure(1.0)])

    def fails_the_second_time(run: object) -> Any:
        for measured in answers:
            return measured
        raise environments.PeerUnavailable("node did not end within 300 s")

    add_workload(monkeypatch, "moody-drain", fails_the_second_time)
    add_workload(monkeypatch, "ours", lambda run: one_figure(1.0))
    asked = ["--workloads", "moody-drain,ours", "--rounds", "3", "--json", str(tmp_path / "figures.json")]
    assert bench.main([*ON_SQLITE, *asked]) == 0
    assert capsys.readouterr().err.count("left out: node did not end within 300 s") == 2
    report = json.loads((tmp_path / "figures.json").read_text())
    assert [figure["workload"] for figure in report["figures"]] == ["ours"]


@pytest.mark.parametrize(("until", "code", "values"), [(2, 0, [0.0, 1.0]), (0, 130, None)])
def test_a_run_that_is_interrupted_tells_of_its_whole_rounds(
    until: int,
    code: int,
    values: list[float] | None,
    bench: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = iter(range(9))
    turns = iter(range(9))

    def interrupted(run: object) -> Any:
        if next(turns) >= until:
            raise KeyboardInterrupt
        return one_figure(1.0)

    add_workload(monkeypatch, "first", lambda run: one_figure(float(next(rounds))))
    add_workload(monkeypatch, "second", interrupted)
    file = tmp_path / "figures.json"
    assert bench.main([*ON_SQLITE, "--workloads", "first,second", "--rounds", "5", "--json", str(file)]) == code
    assert f"interrupted; whole rounds that count: {len(values or ())}" in capsys.readouterr().err
    if values is None:
        assert not file.exists()
    else:
        report = json.loads(file.read_text())
        assert report["rounds"] == len(values)
        assert report["figures"][0]["values"] == values


def add_workload(monkeypatch: pytest.MonkeyPatch, name: str, run: Any, **more: Any) -> None:
    workloads = importlib.import_module("benchmarks.workloads")
    monkeypatch.setitem(workloads.WORKLOADS, name, workloads.Workload(name, ("sqlite",), run, **more))


def one_figure(value: float) -> Any:
    measuring = importlib.import_module("benchmarks.measuring")
    return measuring.Measured([measuring.Figure("rate", value, "/s")])


def test_every_peer_has_its_script_and_pinned_versions(bench: ModuleType) -> None:
    environments = importlib.import_module("benchmarks.peers.environments")
    workloads = importlib.import_module("benchmarks.workloads").WORKLOADS
    peers = {workload.peer for workload in workloads.values() if workload.peer}
    assert {peer.name for peer in peers} == {"pgqueuer", "procrastinate", "awa", "huey", "graphile", "pgboss"}
    for peer in peers:
        assert (environments.HERE / peer.script).exists()
        assert all(re.search(r"(==|@)\d+\.\d+\.\d+$", package) for package in peer.packages)


def test_the_progress_says_which_turn_of_how_many_and_how_long_the_others_may_take(bench: ModuleType) -> None:
    clock = iter([0.0, 0.0, 10.0, 10.0, 10.0, 80.0, 80.0, 80.0, 90.0, 90.0, 90.0, 160.0, 160.0])
    progress = importlib.import_module("benchmarks.progress").Progress(2, ["quick", "slow"], now=lambda: next(clock))
    told = [(progress.begin(), progress.end()) for _ in range(4)]
    assert told == [
        ("1/4  round 1/2", "10 s so far, about 30 s left"),
        ("2/4  round 1/2", "1 min 20 s so far, about 1 min 20 s left"),
        ("3/4  round 2/2", "1 min 30 s so far, about 1 min 10 s left"),
        ("4/4  round 2/2", "2 min 40 s so far"),
    ]


def test_actions_that_were_lost_or_run_twice_are_found(bench: ModuleType) -> None:
    tally = importlib.import_module("benchmarks.checking").Tally(4)
    for number in (0, 1, 1, 2):
        tally.count(number)
    assert tally.violations == ["1 of 4 actions were never run", "1 of 4 actions were run more than once"]


def test_what_several_processes_did_is_checked_against_what_the_database_says(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The worker of the memory workload is stopped before it is through: the rest must wait untouched."""
    checking = importlib.import_module("benchmarks.checking")
    measuring = importlib.import_module("benchmarks.measuring")
    staging = importlib.import_module("benchmarks.staging")
    place = importlib.import_module("benchmarks.places").SqlitePlace(f"sqlite:///{tmp_path}/bench.db")
    run = measuring.Run(place, measuring.Scale(), 4)
    measuring.run_loop(lambda: place.app().init(shards=4))
    staging.stage(run, 5, "due", ahead=staging.AGO)
    assert checking.check_part_done(place, [], 5) == []
    (undone, waiting) = checking.check_part_done(place, [0, 3], 5)
    assert undone.startswith("not 2 of 5 actions are done")
    assert waiting == "5 rows wait, 0 of them claimed, after 2 of 5 actions were run"
    assert checking.check_part_done(place, [0, 0], 5)[0] == "1 actions were run more than once"


def test_what_was_lost_in_a_churn_is_found_although_most_of_it_was_pruned(bench: ModuleType, tmp_path: Path) -> None:
    checking = importlib.import_module("benchmarks.checking")
    measuring = importlib.import_module("benchmarks.measuring")
    staging = importlib.import_module("benchmarks.staging")
    place = importlib.import_module("benchmarks.places").SqlitePlace(f"sqlite:///{tmp_path}/bench.db")
    measuring.run_loop(lambda: place.app().init(shards=4))
    tally = checking.Tally(3)
    for number in range(3):
        tally.count(number)
    assert checking.check_churned(place, tally, scheduled=3, pruned=3) == []
    (missing,) = checking.check_churned(place, tally, scheduled=3, pruned=2)
    assert missing == "of 3 actions 2 were pruned, and the others are not all there: {}"
    staging.stage(measuring.Run(place, measuring.Scale(), 4), 2, "due", ahead=staging.AGO)
    (live, rows) = checking.check_churned(place, tally, scheduled=5, pruned=3)
    assert live.endswith("not all there: {'live': 2}")
    assert rows == "rows are left: 0 incoming, 2 processing"


def made_up_report(*rounds: dict[str, float]) -> Any:
    """Of figures by workload, database (if not PostgreSQL) and figure (if not its rate)."""
    measuring = importlib.import_module("benchmarks.measuring")
    workloads = importlib.import_module("benchmarks.workloads").WORKLOADS
    report = importlib.import_module("benchmarks.report").Report(scale="tiny", shards=4, rounds=len(rounds))
    for figures in rounds:
        for name, value in figures.items():
            workload, _, figure = name.removeprefix("sqlite ").partition(" ")
            database = "sqlite" if name.startswith("sqlite ") else "postgresql"
            unit = "ms" if figure in ("p50", "p99") else "/s"
            measured = measuring.Measured([measuring.Figure(figure or "rate", value, unit)])
            report.add(workloads[workload], database, measured)
    return report


@pytest.mark.parametrize(
    ("figures", "what", "measured", "verdict"),
    [
        ({"schedule-32": 8_000.0, "awa-enqueue-32": 4_000.0}, "schedule, 32", "2.00 × the best peer", "below gate"),
        ({"schedule-32": 8_000.0, "pgboss-enqueue-32": 1_000.0}, "schedule, 32", "8.00 × the best peer", "gate"),
        ({"schedule-32": 12_000.0, "awa-enqueue-32": 2_000.0}, "schedule, 32", "6.00 × the best peer", "aim"),
        ({"schedule-32": 12_000.0}, "schedule, 32", "12,000/s", "not measured"),
        ({"drain": 9.0, "floor drain": 10.0}, "drain 20,000", "0.90 × the protocol floor", "not measured"),
        ({"drain": 4.0, "floor drain": 10.0}, "drain 20,000", "0.40 × the protocol floor", "below gate"),
        ({"drain": 9.0, "floor drain": 10.0, "pgqueuer-drain": 6.0}, "drain 20,000", "1.50 × PgQueuer", "aim"),
        ({"drain-2": 10.0, "drain": 10.0}, "the same, two", "1.00 × one process", "below gate"),
        ({"drain-2": 11.0, "drain": 10.0}, "the same, two", "1.10 × one process", "gate"),
        ({"queue-drain": 50.0, "graphile-drain": 30.0, "queue-floor": 80.0}, "typed queue", "", "aim"),
        ({"latency p50": 2.5, "latency p99": 14.0}, "schedule → handler", "p50 2.50 ms", "gate"),
        ({"latency p50": 2.5, "latency p99": 16.0}, "schedule → handler", "p99 16.00 ms", "below gate"),
        ({"latency p50": 2.0, "latency p99": 9.0, "pgqueuer-latency p50": 2.5}, "schedule → handler", "", "aim"),
        ({"latency p50": 3.1, "latency p99": 9.0, "pgqueuer-latency p50": 3.4}, "schedule → handler", "", "below gate"),
        ({"lateness p50": 1.0, "lateness p99": 5.0}, "lateness", "p50 1.00 ms", "aim"),
        ({"balance p50": 24.0, "balance-small p50": 20.0}, "semaphore: one balance", "1.20 × with 1,000", "gate"),
        ({"sqlite drain": 7_000.0}, "SQLite: drain", "7,000/s", "gate"),
    ],
)
def test_a_target_is_judged_by_the_figures_of_the_run(
    bench: ModuleType, figures: dict[str, float], what: str, measured: str, verdict: str
) -> None:
    judging = importlib.import_module("benchmarks.judging")
    told = judging.as_json(bench.TARGETS, made_up_report(figures))
    (target,) = [one for one in told if one["what"].startswith(what)]
    assert any(text.startswith(measured) for text in target["measured"])
    assert target["verdict"] == verdict


def test_the_best_peer_is_that_with_the_highest_median_and_its_rounds_count(bench: ModuleType) -> None:
    judging = importlib.import_module("benchmarks.judging")
    rounds = [
        {"schedule-32": 900.0, "pgboss-enqueue-32": 300.0, "awa-enqueue-32": 100.0},
        {"schedule-32": 800.0, "pgboss-enqueue-32": 100.0, "awa-enqueue-32": 100.0},
        {"schedule-32": 400.0, "pgboss-enqueue-32": 200.0, "awa-enqueue-32": 400.0},
    ]
    told = judging.as_json(bench.TARGETS, made_up_report(*rounds))
    assert told[0]["measured"] == ["3.00 × the best peer", "800/s"]
    assert (told[0]["gate"], told[0]["aim"]) == (["≥ 3 × the best peer"], ["≥ 5 × the best peer", "≥ 10,000/s"])


def test_a_table_in_a_file_cuts_off_no_name_however_long_the_figures_are(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring = importlib.import_module("benchmarks.measuring")
    slow = measuring.Measured([measuring.Figure("rested p99", 1_234_567.891, "ms")])
    name, reference = "drain-future-100k", "drain-template"
    add_workload(monkeypatch, reference, lambda run: slow)
    ratio = importlib.import_module("benchmarks.workloads").Ratio(reference, "rested p99")
    add_workload(monkeypatch, name, lambda run: slow, compared_to=ratio)
    assert bench.main([*ON_SQLITE, "--workloads", f"{reference},{name}", "--rounds", "2"]) == 0
    table = capsys.readouterr().out
    assert all(told in table for told in (name, f"{reference} rested p99", "1,234,567.89 ms – 1,234,567.89 ms"))


def test_every_target_speaks_of_workloads_that_exist(bench: ModuleType) -> None:
    judging = importlib.import_module("benchmarks.judging")
    workloads = importlib.import_module("benchmarks.workloads").WORKLOADS
    for target in bench.TARGETS:
        for bound in (*target.gate, *target.aim):
            measure = bound.measure
            is_ratio = isinstance(measure, judging.Times)
            pairs = (measure.figured, *measure.others) if is_ratio else ((measure.workload, measure.figure),)
            assert all(measure.database in workloads[workload].databases for workload, _ in pairs)


def test_the_chart_shows_ours_beside_floors_and_peers_and_leaves_out_what_was_not_measured(bench: ModuleType) -> None:
    report = made_up_report(
        {"schedule-many": 30_000.0, "floor schedule": 40_000.0, "pgboss-bulk": 20_000.0, "latency p50": 2.0}
        | {"pgqueuer-latency p50": 4.0, "huey-drain": 500.0}
    )
    svg = importlib.import_module("benchmarks.charting").draw(report)
    texts = texts_of(svg)
    assert {"In batches of 1,000", "schedule_many", "bare statements", "pg-boss"} <= set(texts)
    assert {"30,000/s", "40,000/s · 0.75 ×", "20,000/s · 1.50 ×", "2.00 ms", "4.00 ms · 0.50 ×"} <= set(texts)
    assert any("This is a look, no verdict" in text for text in texts)
    assert not {"awa", "SQLite: drained by one process"} & set(texts), "ours was not measured there"
    widths = {bar.get("class"): float(bar.get("width", "")) for bar in bars_of(svg)[:3]}
    assert widths["ours"] == pytest.approx(widths["floor"] * 0.75, abs=0.1)
    assert widths["peer"] == pytest.approx(widths["floor"] * 0.5, abs=0.1)


def test_every_bar_of_the_chart_is_of_a_workload_that_exists(bench: ModuleType) -> None:
    workloads = importlib.import_module("benchmarks.workloads").WORKLOADS
    for group in importlib.import_module("benchmarks.charting").GROUPS:
        for bar in group.bars:
            assert group.database in workloads[bar.workload].databases
            assert (bar.kind == "peer") == (workloads[bar.workload].peer is not None)


def test_a_chart_that_is_no_svg_is_refused_before_anything_is_measured() -> None:
    done = run_bench("--chart", "chart.png")
    assert done.returncode == 2
    assert "let its name end with .svg" in done.stderr


def texts_of(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{{{SVG}}}text")]


def bars_of(svg: str) -> list[ElementTree.Element]:
    """Without the ground and the legend."""
    return [rect for rect in ElementTree.fromstring(svg).iter(f"{{{SVG}}}rect") if rect.get("height") == "15"]


def test_a_ratio_compares_figures_of_the_same_round(bench: ModuleType) -> None:
    floors_and_drains = ((100.0, 50.0), (1000.0, 800.0), (10.0, 6.0))
    report = made_up_report(*({"floor drain": floor, "drain": drain} for floor, drain in floors_and_drains))
    (figure,) = [figure for figure in report.as_json()["figures"] if figure["workload"] == "drain"]
    assert (figure["median"], figure["ratio"], figure["ratio_to"]) == (50.0, 0.6, "floor drain")
