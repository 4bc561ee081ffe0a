"""The model of large fleets: held against the library itself, where that can be played or measured here."""

from __future__ import annotations

import importlib
import json
import re
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType

import anyio
import pytest
from simulation.quiet_fleet import QuietFleet
from support.by_hand import SteppedWorker
from support.counting import counted_app

from matrixsched.clock import ManualClock
from matrixsched.store.postgresql.store import CONNECTIONS_DEFAULT, SIBLING_CONNECTIONS
from matrixsched.worker.intake import CONTENDED_REST_S, WAKE_JITTER_S
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.reporting import REPORT_EVERY_S
from matrixsched.worker.restraint import HOLD_MAX_S, LOOK_S, LOOK_SHARD_S, VAIN_SHARE

ROOT = Path(__file__).resolve().parent.parent
MINUTES = 10
STATEMENT_S = 0.005
MEASURED_ACTIONS = 5_000
CHANGED = (
    "--workers 64 --shards 256 --no-listen --keep-hours 1 --tidy-batch 10000 "
    "--vacuum-cost-limit 10000 --vacuum-scale 0.2 --max-wal-gb 300"
)


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def tool() -> ModuleType:
    return importlib.import_module("capacity")


def known(name: str) -> float:
    value: float = getattr(importlib.import_module("sizing.assumptions"), name).value
    return value


# Against the library.


@pytest.mark.undistributed("the model is of the usual form")
@pytest.mark.direct("the model is of processes that prepare and listen")
@pytest.mark.anyio
async def test_an_idle_process_sends_as_many_statements_as_the_model_says(database_url: str) -> None:
    clock, reckoning = ManualClock(), importlib.import_module("sizing.reckoning")
    async with counted_app(database_url, clock, shards=64) as (app, sent):

        @app.action("work")
        async def work() -> None: ...

        worker = SteppedWorker(app)
        await worker.live(clock, timedelta(minutes=1))
        told = await sent.during(lambda: worker.live(clock, timedelta(minutes=MINUTES)))
    per_second = told.total() / (MINUTES * 60)
    assert per_second == pytest.approx(reckoning.idle_statements(1.0) + reckoning.tidying_statements(), rel=0.05)


def test_an_idle_fleet_sends_as_many_statements_as_the_model_says() -> None:
    reckoning = importlib.import_module("sizing.reckoning")
    found = QuietFleet(1, workers=20, shards=64, statement_s=STATEMENT_S).live(60)
    reckoned = 20 * reckoning.idle_statements(1.0) + reckoning.tidying_statements()
    assert found.sent.total() / found.seconds == pytest.approx(reckoned, rel=0.05)
    assert found.fruitless == found.looks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "rate", "seconds"),
    [(20, 20.0, 6.0), (20, 100.0, 1.5), (4, 400.0, 2.0)],
    ids=["now and then", "often: most hold back", "more than they can look for"],
)
def test_workers_look_and_find_as_often_as_the_model_says(workers: int, rate: float, seconds: float) -> None:
    found = QuietFleet(1, workers=workers, shards=64, statement_s=STATEMENT_S).live(seconds, rate=rate)
    # As many as came by chance: they are few.
    rate = found.came_due / seconds
    case = tool().a_case("", workers=workers, shards=64, rate=rate, look_s=STATEMENT_S, seconds=seconds)
    reckoned = importlib.import_module("sizing.formulae").looks_of(case.one)
    assert (found.looks - found.fruitless) / seconds == pytest.approx(reckoned.visits, rel=0.1)
    assert found.looks / seconds == pytest.approx(reckoned.all, rel=0.1)


def test_formulae_are_what_comes_of_playing_them_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool().main(["--check"]) == 0, capsys.readouterr().out


def test_a_formula_that_is_off_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    chosen, real = tool(), importlib.import_module("sizing.formulae").looks_of
    monkeypatch.setattr(chosen, "CASES", chosen.CASES[:3])
    monkeypatch.setattr(
        chosen, "looks_of", lambda one: real(importlib.import_module("dataclasses").replace(one, workers=9))
    )
    assert chosen.main(["--check"]) == 1
    assert "off: fruitless" in capsys.readouterr().out


@pytest.mark.undistributed("the model is of the usual form")
@pytest.mark.direct("the model is of processes that prepare and listen")
def test_rows_and_wal_are_as_large_as_the_model_says(postgres_dsn: str) -> None:
    measuring = importlib.import_module("sizing.measuring")
    lives = anyio.run(partial(measuring.measure_lives, postgres_dsn, actions=MEASURED_ACTIONS))
    told = measuring.told_of(lives)
    assert told == pytest.approx({name: known(name) for name in told}, rel=0.15)
    assert lives.dead_rows_hot == 0


def test_what_was_read_is_what_stands_in_the_source() -> None:
    policy, fleet = WorkerPolicy(), importlib.import_module("sizing.fleet").Fleet()
    assert known("LANE_JITTER_S") == WAKE_JITTER_S / 2
    assert known("OVERDUE_REST_S") == CONTENDED_REST_S
    assert known("REPORT_EVERY_S") == REPORT_EVERY_S
    assert (known("VAIN_SHARE"), known("HOLD_MAX_S")) == (VAIN_SHARE, HOLD_MAX_S)
    assert (known("LOOK_US"), known("LOOK_SHARD_US")) == pytest.approx((LOOK_S * 1e6, LOOK_SHARD_S * 1e6))
    assert known("TIDY_EVERY_S") == policy.tidy_every.total_seconds()
    assert known("POOL_CONNECTIONS") == CONNECTIONS_DEFAULT
    assert known("LEASE_CONNECTIONS") <= SIBLING_CONNECTIONS
    assert fleet.vacuum_scale == _scale_factor("scheduled_actions")
    lived_by = {"lease": policy.attempt_lease, "shard_lease": policy.shard_lease, "heartbeat": policy.heartbeat}
    lived_by |= {"hold_max": policy.hold_max, "rest_max": policy.rest_max}
    assert {name: getattr(fleet, name) for name in lived_by} == {
        name: duration.total_seconds() for name, duration in lived_by.items()
    }
    assert (fleet.tidy_batch, fleet.keep_hours) == (policy.tidy_batch, policy.keep_done / timedelta(hours=1))


def _scale_factor(table: str) -> float:
    schema = (ROOT / "schema" / "postgresql" / "0001_initial.sql").read_text()
    made = schema[schema.index(f"create table matrixsched.{table} (") :]
    found = re.search(r"autovacuum_vacuum_scale_factor = ([0-9.]+)", made)
    assert found
    return float(found[1])


# The tool.


def test_the_table_tells_what_breaks_first_and_what_to_change_then(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool().main([]) == 0
    out = capsys.readouterr().out
    assert "1,000 workers, 4,096 shards, 100,000,000 future actions, 50,000 actions/s" in out
    first = out[out.index("where it breaks") :].splitlines()[1]
    assert first.startswith("1. looks: processors that looks ask for")
    assert "fewer shards" in first


def test_json_tells_the_same_with_every_assumption_and_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool().main(["--json", "--workers", "20", "--shards", "64", "--rate", "100"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["fleet"]["workers"], told["fleet"]["shards"], told["fleet"]["rate"]) == (20, 64, 100)
    assert {one["basis"] for one in told["quantities"]} == {"measured", "calculated"}
    assert {one["basis"] for one in told["assumptions"].values()} == {"measured", "read", "assumed"}
    assert all(one["why"] for one in told["assumptions"].values())
    with_bound = {one["name"] for one in told["quantities"] if one["bound"] is not None}
    assert set(told["breaks"]) == with_bound


def share(name: str, *options: str) -> float:
    chosen = tool().parse(list(options))
    fleets, reckoning = importlib.import_module("sizing.fleet"), importlib.import_module("sizing.reckoning")
    names = fleets.Fleet.__dataclass_fields__
    (found,) = [
        one for one in reckoning.reckon(fleets.Fleet(**{of: getattr(chosen, of) for of in names})) if one.name == name
    ]
    return float(found.share)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("processors that looks ask for under load", "--workers 64 --shards 256"),
        ("of the fleet, in use", "--pooled"),
        ("processors for waking them", "--no-listen"),
        ("all of it", "--keep-hours 1"),
        ("finished actions to be pruned", "--tidy-batch 10000"),
        ("between two checkpoints", "--max-wal-gb 300"),
        ("a pass over scheduled_actions", "--vacuum-cost-limit 10000 --vacuum-scale 0.2"),
    ],
)
def test_what_is_to_be_changed_helps(name: str, change: str) -> None:
    assert share(name, *change.split()) < min(share(name), 1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--workers", "0"], "'0' is not a whole number from 1 on"),
        (["--rate", "nan"], "'nan' is not a number above 0"),
        (["--json", "--check"], "not allowed with"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(options: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tool().main(options)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


@pytest.mark.parametrize("options", ["", CHANGED], ids=["default", "changed"])
def test_the_documentation_has_the_tables_of_today(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool().main([*options.split(), "--markdown"]) == 0
    text = (ROOT / "docs" / "capacity.md").read_text()
    assert f"./tools/dev capacity {options}".strip() in text
    assert capsys.readouterr().out.strip() in text


def test_the_documentation_names_every_assumption() -> None:
    text = (ROOT / "docs" / "capacity.md").read_text()
    for name, one in tool().known_ones():
        assert f"| {name} | {one.value:,g} {one.unit} | {one.basis} | {one.why} |" in text
