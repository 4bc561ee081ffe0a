"""Facts about the structure of the code, read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import matrixsched
from matrixsched import errors, events
from matrixsched.errors import MatrixSchedError

PACKAGE = Path(matrixsched.__file__).parent
LINES_MAX = 500
DIALECTS = ("postgresql", "sqlite")

PORTS = {
    "time": "the clock",
    "random": "chance",
    "asyncio": "anyio",
    "datetime.now": "the clock",
    "datetime.utcnow": "the clock",
    "datetime.today": "the clock",
    "uuid.uuid1": "chance",
    "uuid.uuid4": "chance",
}
"""What touches the world outside, and what it is reached through: clock.py alone, so that a seed gives one run."""

ALLOWED = {
    ("clock.py", "time"): "it is the port",
    ("clock.py", "random"): "it is the port",
    ("clock.py", "datetime.now"): "it is the port",
    ("clock.py", "uuid.uuid4"): "it is the port",
    (
        "gates/bells.py",
        "asyncio",
    ): "wakes a task from another thread without waiting for its loop: anyio has no such call",
    (
        "store/postgresql/at_hand.py",
        "asyncio",
    ): "ends what nobody uses, as asyncpg's pool does, without a task of its own",
    ("ops/web/forecasts.py", "asyncio"): "goes on beside the requests, and a mounted site has no task group",
    ("ops/demo.py", "time"): "shows real processes in real time; nothing of it is simulated",
    ("ops/demo.py", "uuid.uuid4"): "keeps the actions of one demonstration apart from those of another",
    ("ops/evidence.py", "time"): "notes when handlers of the demonstration really began",
}


@cache
def sources() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(source) for name, source in sources().items()}


def found_in(tree: ast.AST) -> Iterator[str]:
    """The modules a file imports, and what it takes from them: `time`, `uuid.uuid4`, `datetime.now`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module.partition(".")[0]
                yield from (f"{module}.{name.name}" for name in names)
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                yield f"{owner}.{attribute}"
            case ast.Attribute(value=ast.Attribute(attr=owner), attr=attribute):
                yield f"{owner}.{attribute}"


def test_the_sources_are_those_of_the_package_under_test():
    assert "scheduler.py" in sources()
    assert "store/sqlite/transitions.py" in sources()


def test_time_chance_and_guids_come_through_their_port_alone():
    touched = {(name, port) for name, tree in trees().items() for port in PORTS.keys() & set(found_in(tree))}
    strays = {f"{name} uses {port}: go through {PORTS[port]}" for name, port in touched - ALLOWED.keys()}
    assert not strays
    assert not ALLOWED.keys() - touched, "these exceptions are no longer needed"


@pytest.mark.parametrize("module", ["pickle", "shelve", "marshal"])
def test_nothing_is_stored_in_a_form_that_can_run_code(module):
    assert not [name for name, tree in trees().items() if module in found_in(tree)]


def test_nothing_is_printed_past_the_console_and_the_log():
    printing = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert not printing


def test_nothing_is_left_for_later():
    everything = sources() | {path.name: path.read_text() for path in PACKAGE.rglob("*.sql")}
    assert not [name for name, source in everything.items() if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", source)]


def test_no_module_is_too_long_to_read():
    lengths = {name: source.count("\n") for name, source in sources().items()}
    assert not {name: length for name, length in lengths.items() if length > LINES_MAX}


# What users import.


def test_all_that_the_package_offers_is_named_and_in_order():
    offered = {
        alias.asname or alias.name
        for node in trees()["__init__.py"].body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("matrixsched.")
        for alias in node.names
    }
    assert set(matrixsched.__all__) == offered
    assert matrixsched.__all__ == sorted(matrixsched.__all__)


# Errors.


def error_classes() -> dict[str, type[MatrixSchedError]]:
    return {
        node.name: getattr(errors, node.name)
        for name, tree in trees().items()
        for node in tree.body
        if name.startswith("errors/")
        and isinstance(node, ast.ClassDef)
        and issubclass(getattr(errors, node.name), MatrixSchedError)
    }


def drawn_tree() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each error in the tree of the docstring, with the names of its bases there."""
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        branch = re.fullmatch(
            r" {4}(?P<stem>[│ ]*)(?P<fork>[├└]── )?(?P<name>\w+)(?: \((?P<also>\w+)\))?(?: .*)?", line
        )
        if branch is None or not (branch["fork"] or branch["name"] == MatrixSchedError.__name__):
            continue
        depth = len(branch["stem"]) // 4 + 1 if branch["fork"] else 0
        above = [*above[:depth], branch["name"]]
        parent = above[-2] if depth else Exception.__name__
        yield branch["name"], (parent, branch["also"]) if branch["also"] else (parent,)


def test_every_error_stands_where_the_tree_of_the_docstring_shows_it():
    assert dict(drawn_tree()) == {
        name: tuple(base.__name__ for base in error.__bases__) for name, error in error_classes().items()
    }


def test_every_error_says_what_it_is_and_what_to_do():
    for name, error in error_classes().items():
        assert error.__doc__, name
        if error is not MatrixSchedError:
            assert error.remedy != MatrixSchedError.remedy, f"{name} has no remedy"
            assert error.remedy.endswith("."), name


# Events.


def test_every_event_is_part_of_the_union():
    plumbing = {"Events"}
    classes = {node.name for node in trees()["events.py"].body if isinstance(node, ast.ClassDef)} - plumbing
    assert {event.__name__ for event in get_args(events.Event)} == classes


# SQL.


def test_every_statement_has_its_twin_in_the_other_dialect():
    here, there = ({path.name for path in (PACKAGE / "store/sql" / dialect).iterdir()} for dialect in DIALECTS)
    # SQLite needs none: workers watch its change counter, its one writer holds all grants by writing at all, and sees
    # all that others have moved when it records.
    assert here - there == {"wake.sql", "lock_grants.sql", "unblock.sql"}
    assert there <= here


def test_every_migration_has_its_twin_in_the_other_dialect():
    here, there = (
        {path.name for path in (PACKAGE.parent / "schema" / dialect).glob("[0-9]*.sql")} for dialect in DIALECTS
    )
    assert here == there != set()
