"""The suite on PostgreSQL in other surroundings than usual.

    ./tools/dev test --through-pgbouncer tests/store          every database is reached through a pool of transactions
    ./tools/dev test --default-isolation serializable …       its operator chose another isolation as the default
    ./tools/dev test --distributed …                          every installation is made in distributed form

Only tests that are on PostgreSQL are run: those that ask for our server, and those that start one of their own or let
another process do so, and are marked `postgresql`. One that is about what does not exist in those surroundings says so
with `@pytest.mark.direct("why")`, `@pytest.mark.read_committed("why")` or `@pytest.mark.undistributed("why")`: it is
left out, and told of at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from matrixsched.errors import FormMismatch
from matrixsched.store.postgresql.store import PostgresStore

LEVELS = ("repeatable read", "serializable")
_OF_EITHER = {"database_url", "storage", "kind", "queues_url", "good_url", "watched_url"}
"""Fixtures and parameters that are a database of each kind in turn."""
_ON_POSTGRESQL = ("postgresql", "asyncpg", "psycopg")
"""In the ids of parameters: the kinds of databases, and of their drivers."""
_LEFT_OUT = pytest.StashKey[Counter[str]]()


@dataclass(frozen=True)
class TestedWay:
    __test__ = False

    through_pgbouncer: bool
    default_isolation: str | None
    distributed: bool

    @property
    def is_usual(self) -> bool:
        return not self.through_pgbouncer and self.default_isolation is None and not self.distributed

    @property
    def is_direct(self) -> bool:
        return not self.through_pgbouncer and self.default_isolation is None

    def why_not(self, item: pytest.Item) -> str | None:
        """Why a test cannot hold in these surroundings, if it cannot."""
        for applies, name in (
            (self.through_pgbouncer, "direct"),
            (self.default_isolation, "read_committed"),
            (self.distributed, "undistributed"),
        ):
            mark = item.get_closest_marker(name)
            if applies and mark is not None:
                return str(mark.args[0])
        return None


def way_of(config: pytest.Config) -> TestedWay:
    return TestedWay(
        config.getoption("through_pgbouncer"), config.getoption("default_isolation"), config.getoption("distributed")
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("surroundings of PostgreSQL")
    group.addoption(
        "--through-pgbouncer",
        action="store_true",
        help="run what is on PostgreSQL through a pgbouncer, by transactions",
    )
    group.addoption(
        "--default-isolation",
        choices=LEVELS,
        help="run what is on PostgreSQL in databases that default to this isolation",
    )
    group.addoption("--distributed", action="store_true", help="make every installation on PostgreSQL in that form")


def pytest_configure(config: pytest.Config) -> None:
    """Tests make installations in many places: in distributed form if they do not say which."""
    if way_of(config).distributed:
        usual = PostgresStore.upgrade

        async def upgrade(store: PostgresStore, shard_count: int, *, distributed: bool | None = None) -> list[str]:
            if distributed is not None:
                return await usual(store, shard_count, distributed=distributed)
            try:
                return await usual(store, shard_count, distributed=True)
            except FormMismatch:  # it is as somebody said
                return await usual(store, shard_count)

        PostgresStore.upgrade = upgrade


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    way = way_of(config)
    if way.is_usual:
        return
    left_out = config.stash.setdefault(_LEFT_OUT, Counter())
    kept, dropped = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_on_postgresql = _is_on_postgresql(item) or (way.is_direct and _is_interleaved(item))
        why_not = way.why_not(item)
        if is_on_postgresql and why_not is not None:
            left_out[why_not] += 1
        (kept if is_on_postgresql and why_not is None else dropped).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def _is_interleaved(item: pytest.Item) -> bool:
    """Whether it has sessions of its own, to hold statements between their snapshots and their locks, or a server."""
    return not {"world", "demotion"}.isdisjoint(getattr(item, "fixturenames", ()))


def _is_on_postgresql(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    parameters = str(getattr(getattr(item, "callspec", None), "id", ""))
    if fixtures & _OF_EITHER:
        return any(word in parameters for word in _ON_POSTGRESQL)
    return "postgres_server" in fixtures or item.get_closest_marker("postgresql") is not None


# With pytest-xdist it is the workers that collect, and another process that tells.


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = dict(session.config.stash.get(_LEFT_OUT, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Each worker collects everything: what one of them left out, all did.
    found = getattr(node, "workeroutput", {}).get("left_out", {})
    node.config.stash.setdefault(_LEFT_OUT, Counter()).update(
        {why: max(0, many - node.config.stash[_LEFT_OUT][why]) for why, many in found.items()}
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for why, many in sorted(config.stash.get(_LEFT_OUT, Counter()).items()):
        terminalreporter.write_line(f"left out: {many} ({why})")
