"""The short form of the fuzz, with fixed seeds; and that each of its checks can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from fuzz.commands import COMMANDS, Typist, lines
from fuzz.inputs import SECRET, Input, Made
from fuzz.judge import Judge, judged
from fuzz.machine import Model
from fuzz.rounds import made_small, play_round, run_machine
from fuzz.sides import PLAIN, Side
from fuzz.surfaces import SURFACES, sequences
from fuzz.verdicts import Found, Verdict
from matrixsched import App
from matrixsched.errors import BadInput, InvalidPayload
from matrixsched.ops.cli import cli
from matrixsched.queues.ledger import SyncBatchStorage
from matrixsched.semaphores import TaskSemaphore

# What holds.


def test_whatever_is_called_both_databases_give_the_same_verdict(judge: Judge) -> None:
    assert not play_round(judge.play, sequences, 1, 15, judge.known)
    assert sum(tally.inputs for tally in judge.tallies.values()) > 100


def test_whatever_is_typed_both_databases_give_the_same_verdict(typist: Typist) -> None:
    assert not play_round(typist.play, lines, 1, 5, typist.known)


def test_clients_and_workers_leave_the_same_behind_on_both_databases(model: Model) -> None:
    assert not run_machine(model, 1, 2)


DAY = [
    Input("schedule", ("scripted", {"outcomes": ["fail", "retry", "child"]}), {"id": "a", "template": "alerts"}),
    Input("schedule", ("scripted", {"outcomes": ["slow", "done"]}), {"id": "b", "limit": "k1", "priority": 1}),
    Input("schedule", ("scripted", {"outcomes": ["done"]}), {"id": "c"}),
    Input("semaphores.update", ("small",), {"active": 1}),
    Input("semaphore.enqueue_many", ("small", {"t1": 1, "t2": 5})),
    Input("queues.put_many", ([Made("Mixed", (), {"number": number}) for number in range(5)],)),
    Input("worker.run_due", (0,)),
    Input("worker.run_ready", (1,)),
    Input("pass", (11,)),
    Input("worker.die", (0,)),
    Input("worker.report", (1,)),
    Input("worker.manage", (1,)),
    Input("pass", (60,)),
    Input("worker.run_due", (1,)),
    Input("worker.balance", (0,)),
    Input("worker.run_ready", (0,)),
    Input("queues.redrive", ("mixed",)),
    Input("worker.tidy", (0,)),
    Input("pass", (86_400,)),
    Input("worker.expire", (0,)),
    Input("worker.run_due", (0,)),
]


def test_a_day_with_everything_is_the_same_on_both_databases(model: Model) -> None:
    model.play(DAY)


# Nothing is left out.


def test_every_public_call_is_fuzzed() -> None:
    app = App("sqlite://")
    owners: dict[str, Any] = {"": app, "limits.": app.limits, "templates.": app.templates, "quota.": app.quota}
    owners |= {"semaphores.": app.semaphores, "queues.": app.queues, "storage.": app.queues.storage_over(app.store)}
    owners |= {"semaphore.": TaskSemaphore(app.semaphores, "key")}
    calls = {f"{prefix}{name}" for prefix, owner in owners.items() for name in dir(type(owner)) if name[0] != "_"}
    assert calls - SURFACES.keys() == UNFUZZED
    assert SURFACES.keys() - calls == {"App", *(made.__name__ for made in PLAIN)}
    assert {name for name in dir(SyncBatchStorage) if name[0] != "_"} == {
        name.removeprefix("storage.") for name, surface in SURFACES.items() if surface.has_sync and "storage." in name
    }


UNFUZZED = {
    "open",  # and these: how an application lives, is put together and is tested
    "close",
    "bound_to",
    "stores",
    "middleware",
    "on",
    "on_news",
    "scheduler_for",
    "on_try_release",  # on_acquired with another name
    "each",  # list, page by page
    "queues.over",  # and these: how queues are put together
    "queues.bound_to",
    "queues.storage",
    "queues.storage_over",
    "queues.is_in_database",
    "queues.refuse_elsewhere",
}


def test_every_command_is_fuzzed_with_all_of_its_options() -> None:
    commands = dict(_commands(get_command(cli), ""))
    # Two start processes; the others tell of the machine, the database and the moment they are asked on.
    assert commands.keys() - COMMANDS.keys() == {"demo", "check", "doctor", "serve", "top"}
    assert {name: command.takes() for name, command in COMMANDS.items()} == {
        name: _options(commands[name]) for name in COMMANDS
    }


def _commands(command: Any, before: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield before, command
        return
    for name, inner in command.commands.items():
        yield from _commands(inner, f"{before} {name}".strip())


def _options(command: Any) -> set[str]:
    options = [one for one in command.params if one.param_type_name == "option"]
    return {name for one in options for name in (*one.opts, *one.secondary_opts)}


# Each check can fail.


async def _nothing(*_: Any, **__: Any) -> None: ...


def _only_on_sqlite(judge: Judge, monkeypatch: pytest.MonkeyPatch, replaced: Any) -> None:
    monkeypatch.setattr(judge.sides.both[0].app.limits, "set", replaced, raising=True)


SET = [Input("pass", (1,)), Input("limits.get", ("global",)), Input("limits.set", ("global", "5/s"), {"pool": 3})]


def test_another_answer_is_found_and_made_small(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    _only_on_sqlite(judge, monkeypatch, _nothing)
    with pytest.raises(Found, match="limits.set: differs") as found:
        judge.play(SET)
    small = made_small(judge.play, found.value)
    assert small.steps == [Input("limits.set", ("global", "5/s"))]
    assert "judge.play(\n        [\n            Input('limits.set', ('global', '5/s'), {}),\n" in str(small)


def test_rows_that_differ_are_found_though_the_answers_are_alike(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = judge.sides.both[0].app.limits
    really = limits.set

    async def with_another_pool(name: str, rate: str, *, pool: int = 0) -> Any:
        answer = await really(name, rate, pool=pool)
        await really(name, rate, pool=pool + 1)
        return answer

    _only_on_sqlite(judge, monkeypatch, with_another_pool)
    with pytest.raises(Found, match="limits.set: wrote other rows"):
        judge.play(SET)


def test_an_error_that_is_not_ours_is_found(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise KeyError("pool")

    _only_on_sqlite(judge, monkeypatch, fails)
    with pytest.raises(Found, match="limits.set: unhandled: on sqlite: unhandled: ..KeyError"):
        judge.play(SET)


def test_a_refusal_that_wrote_something_is_found(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = judge.sides.both[0].app.limits
    really = limits.set

    async def refuses_too_late(*args: Any, **options: Any) -> None:
        await really(*args, **options)
        raise BadInput("too late")

    _only_on_sqlite(judge, monkeypatch, refuses_too_late)
    with pytest.raises(Found, match="limits.set: wrote although refused: on sqlite: limits;"):
        judge.play(SET)


def test_a_payload_in_a_message_is_found() -> None:
    try:
        try:
            raise ValueError(f"{SECRET} is no number")
        except ValueError:
            raise InvalidPayload("greet", "is wrong")  # noqa: B904  # so that the trace shows both
    except InvalidPayload as error:
        verdict = Verdict("refused", ("InvalidPayload", str(error)), error)
    (violation,) = judged(Input("schedule"), "sqlite", verdict, [])
    assert violation.rule == "shows the payload"


def test_a_step_of_a_worker_that_differs_is_found(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite: Side = model.sides.both[0]
    handler = sqlite.app.handlers.named("scripted")
    monkeypatch.setattr(sqlite.app.handlers, "_by_name", sqlite.app.handlers._by_name | {"scripted": _failing(handler)})
    with pytest.raises(Found, match="wrote other rows"):
        model.play(DAY)


def _failing(handler: Any) -> Any:
    async def fails(payload: Any) -> None:
        raise RuntimeError("only here")

    app = App("sqlite://")
    return app.action(handler.name)(fails)
