"""The tests of the store that ask a statement, found out by letting all of them run once.

A session of pytest collects the tests; instead of running them it forks a process for each mutant, which plants it and
runs those that ask its statement until one fails. Those that caught mutants of the same statement come first.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from hunting.deeper import At, Catch
from hunting.forks import Failed, Hanging, Teller, each_in_a_process
from hunting.hot import Mutation, planted
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.statements import Dialect

TESTS = Path(__file__).resolve().parent.parent
BEHAVIOUR = (
    "store/transitions",
    "queues/test_storage.py",
    "queues/test_database_storage.py",
    "queues/test_storage_model.py",
    "queues/test_lost_answers.py",
)
"""Those that own the clock and run no worker: a mutant, and not the load of the machine, makes them fail."""
PLANS = "store/test_plans.py"
ALSO: dict[Dialect, tuple[str, ...]] = {
    "sqlite": (PLANS,),
    "postgresql": (
        "store/test_patience.py",
        *(f"store/{path.name}" for path in sorted(TESTS.glob("store/test_interleaved_*.py"))),
    ),
}
BEHAVES, INTERLEAVED, PLANNED = "behaviour tests", "interleaving tests", "plan tests"
KINDS = (BEHAVES, INTERLEAVED, PLANNED)
"""In this order; plans after whatever is deeper, for that a plan is another says nothing of what comes of it."""
DATABASES = {"sqlite", "postgresql", "memory"}

Deeper = Callable[[Mutation, At], Catch | None]
"""The mutant is not planted then."""


@dataclass(frozen=True, slots=True)
class Verdict:
    mutation: Mutation
    catch: Catch | None
    """None: it survived."""


def hunt(
    dialect: Dialect,
    mutations: Sequence[Mutation],
    deeper: Deeper,
    *,
    jobs: int = 1,
    tests: Sequence[str] | None = None,
    tell: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """What catches each: a test of the store, else what is `deeper`, else that its plan is another."""
    files = tests or [*BEHAVIOUR, *ALSO[dialect]]
    hunter = Hunter(dialect, mutations, deeper, jobs, tell)
    # Which examples are drawn must not differ from mutant to mutant; one that fails need not be made smaller.
    settings.register_profile("hunt", derandomize=True, database=None, phases=[Phase.explicit, Phase.generate])
    before, output = settings.get_current_profile_name(), io.StringIO()
    settings.load_profile("hunt")
    with tempfile.TemporaryDirectory(prefix="matrixsched-hunt-") as folder, contextlib.redirect_stdout(output):
        try:
            options = [
                "-c",
                str(TESTS.parent / "pyproject.toml"),
                "-qq",
                "-p",
                "no:cacheprovider",
                "-o",
                "timeout=0",
                "-o",
                "tmp_path_retention_policy=none",
            ]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins that were imported before
            where = [str(TESTS / file) for file in files]
            code = pytest.main([*options, f"--basetemp={folder}/tests", *where], plugins=[hunter])
        finally:
            settings.load_profile(before)
    if code != pytest.ExitCode.OK:
        raise Failed(output.getvalue())
    return hunter.verdicts


@dataclass(slots=True)
class Asked:
    """What a test asked, and how long it took."""

    statements: set[str]
    seconds: float
    failure: str = ""


@dataclass(slots=True)
class Hunter:
    """The plugin."""

    dialect: Dialect
    mutations: Sequence[Mutation]
    deeper: Deeper
    jobs: int
    tell: Callable[[Verdict], None]
    verdicts: list[Verdict] = field(default_factory=list)
    _tests: dict[str, list[pytest.Item]] = field(default_factory=lambda: defaultdict(list))
    """By statement, the fastest first."""
    _caught: Counter[tuple[str, str]] = field(default_factory=Counter)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._is_ours(item)]

    def _is_ours(self, item: pytest.Item) -> bool:
        """Of this database; and with nothing else taken out of the statements."""
        parameters = _parameters(item)
        databases = DATABASES & {value for value in parameters.values() if isinstance(value, str)}
        is_elsewhere = self.dialect == "sqlite" and "postgres_server" in getattr(item, "fixturenames", ())
        return not parameters.get("taken_out") and databases <= {self.dialect} and not is_elsewhere

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # made once, not in each process
        self._learn(session.items)
        for mutation, found in each_in_a_process(self._work, self.mutations, self.jobs):
            catch = Catch("does not end", found.at) if isinstance(found, Hanging) else found
            if catch is not None:
                self._caught[mutation.statement, catch.where] += 1
            self.verdicts.append(Verdict(mutation, catch))
            self.tell(self.verdicts[-1])
        return True

    # Which test asks what.

    def _learn(self, items: list[pytest.Item]) -> None:
        ((_, asked),) = each_in_a_process(_run_all, [items], 1)
        by_name = {item.nodeid: item for item in items}
        for name, one in sorted(asked.items(), key=lambda pair: pair[1].seconds):
            if one.failure:
                raise Failed(f"{name} fails without any mistake:\n{one.failure}")
            for statement in one.statements | {_parameters(by_name[name]).get("name")}:
                self._tests[statement].append(by_name[name])

    def _work(self, mutation: Mutation, teller: Teller) -> Catch | None:
        tests = self._ordered(mutation.statement)
        plans = [test for test in tests if _kind(test) == PLANNED]
        with planted(mutation):
            catch = _first_failure(tests[: len(tests) - len(plans)], teller)
        catch = catch or self.deeper(mutation, teller.at)
        with planted(mutation):
            return catch or _first_failure(plans, teller)

    def _ordered(self, statement: str) -> list[pytest.Item]:
        def rank(item: pytest.Item) -> tuple[int, int]:
            return KINDS.index(_kind(item)), -self._caught[statement, item.nodeid]

        return sorted(self._tests[statement], key=rank)


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def _run_all(items: list[pytest.Item], teller: Teller) -> dict[str, Asked]:
    """Without any mistake."""
    found: dict[str, Asked] = {}
    with _noting_what_is_asked() as statements:
        for item, following in _with_the_following(items):
            teller.at(item.nodeid)
            statements.clear()
            began = time.monotonic()
            failures = _failures(item, following)
            found[item.nodeid] = Asked(set(statements), time.monotonic() - began, "".join(failures))
    return found


def _first_failure(items: list[pytest.Item], teller: Teller) -> Catch | None:
    catch = None
    for item, following in _with_the_following(items):
        teller.at(item.nodeid)
        if _failures(item, following):
            catch = Catch(_kind(item), item.nodeid)
            with contextlib.suppress(Exception):  # what it spoilt may not be put in order any more
                item.session._setupstate.teardown_exact(None)
            break
    return catch


def _with_the_following(items: list[pytest.Item]) -> Iterable[tuple[pytest.Item, pytest.Item | None]]:
    """None after the last, and nothing at all where no test asks the statement."""
    return zip_longest(items, items[1:])


def _failures(item: pytest.Item, following: pytest.Item | None) -> list[str]:
    return [report.longreprtext for report in runtestprotocol(item, log=False, nextitem=following) if report.failed]


def _kind(item: pytest.Item) -> str:
    if "test_interleaved_" in item.nodeid:
        return INTERLEAVED
    return PLANNED if item.path.name.endswith("plans.py") else BEHAVES


@contextlib.contextmanager
def _noting_what_is_asked() -> Iterator[set[str]]:
    names: set[str] = set()

    def noting(asks: Callable[..., Any]) -> Callable[..., Any]:
        def ask(self: Any, name: str, *arguments: Any, **parameters: Any) -> Any:
            names.add(name)
            return asks(self, name, *arguments, **parameters)

        return ask

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteAsking, "_ask", noting(SqliteAsking._ask))
        patch.setattr(SqliteAsking, "_each", noting(SqliteAsking._each))
        patch.setattr(PostgresAsking, "_ask", noting(PostgresAsking._ask))
        yield names
