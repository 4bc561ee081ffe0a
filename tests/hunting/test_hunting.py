"""The hunt in short: mutants of small statements on each database. All of it: ./tools/dev mutants."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from interleaver.moves import MOVES
from support.postgres import DSN_VARIABLE, PostgresServer

from hunting.behaviour import Verdict, hunt
from hunting.deeper import At, Catch, interleaved, pairs_of, simulated
from hunting.explained import explained_in_vain, explanations, judge
from hunting.forks import Failed, Hanging, Teller, each_in_a_process
from hunting.hot import DIALECTS, HOT, Mutation, file_of, hot_statements, mutations, planted
from hunting.refusing import refused_by_sqlite
from matrixsched.store.statements import Dialect, load

# From Python 3.12 on it warns of a fork beside other threads; these children only count.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

ROOT = Path(__file__).resolve().parent.parent.parent
SHARDS = "store/transitions/test_shards.py"
OF_THE_USUAL_FORM = pytest.mark.undistributed("mutants are made of sql/postgresql/")
IN_SESSIONS = pytest.mark.direct("what it starts goes straight to the server")
ON_POSTGRESQL = (pytest.mark.postgresql, OF_THE_USUAL_FORM, IN_SESSIONS)
SMALL = ["beat_shard", "close_fence"]


def nothing_deeper(mutation: Mutation, at: At) -> Catch | None:
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    "dialect", [pytest.param(one, marks=ON_POSTGRESQL if one == "postgresql" else ()) for one in DIALECTS]
)
def test_mutants_of_small_statements_are_caught_or_explained(
    dialect: Dialect, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """In a process that has nothing else: it forks for each mutant."""
    where = {}
    if dialect == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        where = {DSN_VARIABLE: server.admin_dsn}
    file = tmp_path / "found.json"
    options = ["--dialect", dialect, "--tests", SHARDS, "--seeds", "0", "--schedules", "0", "--jobs", "1"]
    chosen = [word for name in SMALL for word in ("--statement", name)]
    command = [sys.executable, "tools/sql_mutants.py", *options, *chosen, "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | where, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert [one["what"] for one in found] == [one.what for one in mutations(dialect, SMALL)]
    assert {one["caught_by"] for one in found} == {"behaviour tests", None}


def test_each_explanation_is_of_a_mutant_that_there_is() -> None:
    assert not explained_in_vain()
    assert all(why.endswith(".") for why in explanations().values())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_file_of_the_hot_ones_is_there_and_every_move(dialect: Dialect) -> None:
    only_there = {"unblock", "lock_grants"} if dialect == "sqlite" else set()
    assert {file_of(name) for name in hot_statements(dialect)} == HOT.keys() - only_there
    assert {move for hot in HOT.values() for move in hot.moves} <= MOVES.keys()


# What comes after the tests.


def the_mutant(dialect: Dialect, statement: str, what: str) -> Mutation:
    (found,) = (one for one in mutations(dialect, [statement]) if one.what == what)
    return found


def test_the_simulator_notices_what_is_planted_and_nothing_else() -> None:
    mutation = the_mutant("sqlite", "take_tasks.take", "without t.due_at <= :now")
    steps: list[str] = []
    with planted(mutation):
        catch = simulated(mutation.hot, 3, steps.append)
    assert catch is not None
    assert catch.where.startswith(steps[-1])
    assert simulated(mutation.hot, 1, steps.append) is None


@OF_THE_USUAL_FORM
@IN_SESSIONS
def test_the_interleaver_notices_a_mutant(postgres_server: PostgresServer) -> None:
    mutation = the_mutant("postgresql", "beat_shard", "without last_lock_guid = cast(:sync_guid as uuid)")
    steps: list[str] = []
    catch = interleaved(mutation, postgres_server, 4, steps.append)
    assert catch is not None
    assert steps[-1] in [f"{','.join(names)} in {scene}" for names, scene in pairs_of(mutation.hot)]


# What is no mistake; who is told.


def test_what_the_database_does_not_take_is_refused() -> None:
    good = mutations("sqlite", ["beat_shard"])
    bad = Mutation("sqlite", "beat_shard", "nonsense", "update no_such_table set locked = :locked")
    assert [(one, why) for one, why in refused_by_sqlite([*good, bad])] == [
        (bad, "no such table: no_such_table"),
    ]


def test_a_mutant_is_planted_for_as_long_as_it_is_hunted() -> None:
    mutation = mutations("sqlite", ["beat_shard"])[0]
    sound = load("sqlite", "default")["beat_shard"]
    with planted(mutation):
        assert load("sqlite", "default")["beat_shard"].text == mutation.text != sound.text
    assert load("sqlite", "default")["beat_shard"] is sound


def test_survivors_without_an_explanation_and_explanations_without_a_survivor_are_told() -> None:
    name = next(iter(explanations()))
    explained = Mutation(name[0], name[1], name[2], "")  # type: ignore[arg-type]
    other = Mutation("sqlite", "beat_shard", "something else", "")
    caught = Catch("simulator", "seed 1")
    assert judge([Verdict(explained, None), Verdict(other, caught)]).is_good
    assert judge([Verdict(other, None)]).unexplained == [Verdict(other, None)]
    assert judge([Verdict(explained, caught)]).caught_though_explained == [Verdict(explained, caught)]


# Processes.


def test_each_case_has_a_process_of_its_own() -> None:
    found = dict(each_in_a_process(lambda case, teller: (case * 2, os.getpid()), [1, 2, 3], 2))
    assert {case: doubled for case, (doubled, _) in found.items()} == {1: 2, 2: 4, 3: 6}
    assert len({os.getpid(), *(pid for _, pid in found.values())}) == 4


def test_who_does_not_come_to_an_end_is_told() -> None:
    def hang(case: int, teller: Teller) -> None:
        teller.at("the only step")
        os.kill(os.getpid(), signal.SIGALRM)  # as the alarm does when the time is over

    assert list(each_in_a_process(hang, [1], 1)) == [(1, Hanging("the only step"))]


def test_work_that_is_broken_is_no_catch() -> None:
    def break_down(case: int, teller: Teller) -> None:
        raise LookupError("where is it?")

    with pytest.raises(Failed, match="where is it"):
        list(each_in_a_process(break_down, [1], 1))


def test_what_no_test_asks_survives_them(tmp_path: Path) -> None:
    idle = tmp_path / "test_idle.py"
    idle.write_text("def test_idle():\n    pass\n")
    found = mutations("sqlite", ["beat_shard"])
    verdicts = hunt("sqlite", found, nothing_deeper, tests=[str(idle)])
    assert verdicts == [Verdict(mutation, None) for mutation in found]


LOOKS_AT_THE_TEXT = """
import pytest

from matrixsched.store.statements import load

SOUND = {sound!r}


@pytest.mark.parametrize("name", ["beat_shard"])
def test_text(name):
    assert load("sqlite", "default")[name].text == SOUND
"""


def test_a_plan_is_looked_at_when_nothing_else_notices(tmp_path: Path) -> None:
    plans = tmp_path / "test_plans.py"
    plans.write_text(LOOKS_AT_THE_TEXT.format(sound=load("sqlite", "default")["beat_shard"].text))
    found = mutations("sqlite", ["beat_shard"])[:1]
    deeper = Catch("simulator", "seed 1")
    (by_plan,) = hunt("sqlite", found, nothing_deeper, tests=[str(plans)])
    (by_behaviour,) = hunt("sqlite", found, lambda mutation, at: deeper, tests=[str(plans)])
    assert by_plan.catch is not None
    assert by_plan.catch.by == "plan tests"
    assert by_behaviour.catch == deeper


def test_tests_that_fail_without_any_mistake_catch_nothing(tmp_path: Path) -> None:
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text("def test_wrong():\n    assert False\n")
    with pytest.raises(Failed, match="fails without any mistake"):
        hunt("sqlite", mutations("sqlite", ["beat_shard"]), nothing_deeper, tests=[str(wrong)])
