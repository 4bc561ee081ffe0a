"""Calls that run at the same time go together; one caller's trouble is nobody else's."""

import anyio
import pytest
from anyio.lowlevel import checkpoint

from matrixsched.coalescer import Coalescer
from matrixsched.errors import DatabaseBusy, DatabaseError, OutcomeUnknown

pytestmark = pytest.mark.anyio


class Database:
    """Records the statements it gets; each ends when `finish` is called."""

    def __init__(self) -> None:
        self.statements: list[list[str]] = []
        self.begun = anyio.Event()
        self.gates: list[anyio.Event] = []
        self.hot: set[str] = set()
        self.error: type[Exception] = DatabaseBusy
        self.held = False

    async def send(self, items, kind):
        self.statements.append(list(items))
        if self.held:
            gate = anyio.Event()
            self.gates.append(gate)
            self.begun.set()
            await gate.wait()
        else:
            await checkpoint()
        if self.hot & set(items):
            raise self.error("in the way")
        return [item.upper() for item in items]

    async def wait_for_statements(self, count: int) -> None:
        while len(self.gates) < count:
            self.begun = anyio.Event()
            await self.begun.wait()

    def finish(self, number: int) -> None:
        self.gates[number].set()


@pytest.fixture
def database() -> Database:
    return Database()


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await checkpoint()


async def test_calls_gather_while_two_statements_are_under_way(database):
    coalescer = Coalescer(database.send)
    database.held = True
    answers: dict[str, str] = {}

    async def caller(name: str) -> None:
        answers[name] = await coalescer.submit(name, key=name, kind=True)

    async with anyio.create_task_group() as callers:
        for name in "abcdefgh":
            callers.start_soon(caller, name)
            await settle()
        await database.wait_for_statements(2)
        assert database.statements == [["a"], ["b"]]
        database.finish(0)
        await database.wait_for_statements(3)
        assert database.statements[2] == list("cdefgh")
        database.finish(1)
        database.finish(2)
    assert answers == {name: name.upper() for name in "abcdefgh"}


async def test_calls_made_in_the_same_moment_go_in_one_statement(database):
    coalescer = Coalescer(database.send)
    async with anyio.create_task_group() as callers:
        for name in "abcdefgh":
            callers.start_soon(lambda name=name: coalescer.submit(name, key=name, kind=True))
    assert database.statements == [list("abcdefgh")]


async def test_an_id_is_never_twice_in_a_statement_nor_in_two_at_once_and_its_order_is_kept(database):
    coalescer = Coalescer(database.send)
    database.held = True
    ended: list[int] = []

    async def caller(number: int) -> None:
        await coalescer.submit("x", key="x", kind=True)
        ended.append(number)

    async with anyio.create_task_group() as callers:
        for number in range(3):
            callers.start_soon(caller, number)
            await settle()
        for number in range(3):
            await database.wait_for_statements(number + 1)
            assert len(database.statements) == number + 1
            database.finish(number)
            await settle()
    assert ended == [0, 1, 2]


async def test_kinds_do_not_mix(database):
    coalescer = Coalescer(database.send)
    async with anyio.create_task_group() as callers:
        for number, name in enumerate("abcdef"):
            callers.start_soon(lambda name=name, kind=number % 2 == 0: coalescer.submit(name, key=name, kind=kind))
    together = {frozenset(statement) for statement in database.statements}
    assert all(statement <= set("ace") or statement <= set("bdf") for statement in together)
    assert frozenset().union(*together) == set("abcdef")


async def test_one_callers_lock_or_mistake_is_nobody_elses(database):
    for error in (DatabaseBusy, DatabaseError):
        database.error, database.hot = error, {"hot"}
        coalescer = Coalescer(database.send)
        answers: dict[str, object] = {}

        async def caller(name: str, coalescer=coalescer, answers=answers) -> None:
            try:
                answers[name] = await coalescer.submit(name, key=name, kind=True)
            except DatabaseError as failed:
                answers[name] = type(failed)

        async with anyio.create_task_group() as callers:
            for name in ["a", "b", "c", "hot", "z"]:
                callers.start_soon(caller, name)
        assert answers == {"a": "A", "b": "B", "c": "C", "z": "Z", "hot": error}


async def test_a_locked_row_among_many_is_soon_alone(database):
    database.error, database.hot = DatabaseBusy, {"n37"}
    coalescer = Coalescer(database.send)
    busy: list[str] = []

    async def caller(name: str) -> None:
        try:
            await coalescer.submit(name, key=name, kind=True)
        except DatabaseBusy:
            busy.append(name)

    async with anyio.create_task_group() as callers:
        for number in range(64):
            callers.start_soon(caller, f"n{number}")
    assert busy == ["n37"]
    assert len(database.statements) == 13  # seven with the locked row, each but the last with a half beside it


async def test_an_unknown_outcome_is_never_split(database):
    database.error, database.hot = OutcomeUnknown, {"c"}
    coalescer = Coalescer(database.send)
    unknown: list[str] = []

    async def caller(name: str) -> None:
        try:
            await coalescer.submit(name, key=name, kind=True)
        except OutcomeUnknown:
            unknown.append(name)

    async with anyio.create_task_group() as callers:
        for name in "abcd":
            callers.start_soon(caller, name)
    assert sorted(unknown) == ["a", "b", "c", "d"]
    assert database.statements == [["a", "b", "c", "d"]]


async def test_a_caller_that_is_cancelled_while_it_sends_for_others_does_not_take_them_with_it(database):
    coalescer = Coalescer(database.send)
    database.held = True
    answers: list[str] = []

    async def caller(name: str) -> None:
        answers.append(await coalescer.submit(name, key=name, kind=True))

    async with anyio.create_task_group() as patient:
        async with anyio.create_task_group() as impatient:
            for name in "ab":
                impatient.start_soon(caller, name)
                await settle()
            await database.wait_for_statements(2)
            for name in "cde":
                patient.start_soon(caller, name)
            await settle()
            impatient.cancel_scope.cancel()
            database.finish(0)
            database.finish(1)
        await database.wait_for_statements(3)
        database.finish(2)
    assert answers[-3:] == ["C", "D", "E"]


async def test_a_caller_that_is_cancelled_while_it_waits_leaves_no_trace(database):
    coalescer = Coalescer(database.send)
    database.held = True
    async with anyio.create_task_group() as patient:
        for name in "ab":
            patient.start_soon(lambda name=name: coalescer.submit(name, key=name, kind=True))
            await settle()
        await database.wait_for_statements(2)
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(lambda: coalescer.submit("c", key="c", kind=True))
            await settle()
            impatient.cancel_scope.cancel()
        patient.start_soon(lambda: coalescer.submit("d", key="d", kind=True))
        await settle()
        database.finish(0)
        await database.wait_for_statements(3)
        assert database.statements[2] == ["d"]
        database.finish(1)
        database.finish(2)
