"""`matrixsched queues` by numbers: what is shown can be typed again, and a slip of the keyboard does nothing."""

from __future__ import annotations

import pytest
from support.command import on
from support.queues_command import Queues

from matrixsched import App
from matrixsched.queues.database import DatabaseStorage

pytestmark = pytest.mark.installed

EVERY_VERB = [
    ["show"],
    ["pause"],
    ["resume"],
    ["set", "--batch-size", "5", "--yes"],
    ["retry", "--all", "--yes"],
    ["redrive", "--all", "--yes"],
    ["purge", "--waiting", "--all", "--yes"],
]


@pytest.mark.parametrize("typed", EVERY_VERB, ids=lambda typed: typed[0])
def test_a_number_that_nobody_ever_used_is_refused(queues: Queues, typed: list[str]) -> None:
    queues.fill(ready=1)
    bare = queues.bare(*typed, "12345")
    assert (bare.code, bare.out) == (2, "")
    assert "there is no queue 12345: it has neither tasks nor settings, and no worker handles it." in bare.err
    assert "`matrixsched queues list`; for a queue that is new, give its contract by --contract FILE" in bare.err
    refused = queues(*typed, "12345")
    assert (refused.code, refused.out) == (2, "")
    assert "and the contract has 7 (emails), 8 (sms). Check the number." in refused.err
    assert [row["queue"] for row in queues.bare("list", "--json").json] == [7]


def test_a_number_is_enough_where_there_are_tasks_or_were_some(queues: Queues) -> None:
    queues.fill(ready=1, queue=21)
    queues.fill(dead=1, queue=22)
    for number in ("21", "22"):
        assert queues.bare("show", number).code == 0
        assert queues.bare("pause", number).code == 0
    queues.fill(ready=1, queue=23)
    assert queues.bare("purge", "23", "--waiting", "--all", "--yes").code == 0
    assert queues.bare("show", "23").code == 0, "it had tasks"


def test_a_number_is_enough_where_a_contract_settings_or_a_worker_know_it(queues: Queues) -> None:
    assert queues("show", "8").code == 0
    assert queues("set", "8", "--batch-size", "5", "--yes").code == 0
    assert queues.bare("show", "8").code == 0

    async def report(app: App) -> None:
        saying = app.store.transitions.report_processors
        said = saying(app.chance.guid(), name="host/1", processors_max=4, report={"queues": {"9": {}}})
        await app.store.run(said)

    on(queues.url, report)
    assert queues.bare("pause", "9").code == 0


def test_a_count_that_stopped_says_so(queues: Queues) -> None:
    queues.fill(ready=10_001)
    assert queues.bare("list").out.splitlines()[1].split()[2] == "10,000+"
    assert "each up to 10,000" in " ".join(queues.typed(["matrixsched", "queues", "show", "--help"]).out.split())


def test_what_is_shown_can_be_typed_again(queues: Queues) -> None:
    queues.fill(ready=1_002, queue=12345)
    listed = queues.bare("list").out.splitlines()[1].split()
    assert (listed[0], listed[2]) == ("12345", "1,002")
    shown = queues.bare("show", "--tasks", "1002", listed[0]).out
    assert shown.splitlines()[1].split() == ["queue", "12345"]
    tasks = shown.partition("DEAD LETTERS")[0].partition("TASKS\n")[2]
    last = tasks.splitlines()[-2].split()[0]
    assert int(last) > 1_000
    assert queues.bare("purge", "--waiting", "--yes", "12345", last).code == 0

    async def set_aside(storage: DatabaseStorage) -> None:
        await storage.set_aside([(task, "it is broken") for task in await storage.get(12345, 1_001)])

    queues.do(set_aside)
    letters = queues.bare("show", "--dead", "1001", "12345").out.partition("DEAD LETTERS\n")[2]
    last = letters.partition("WORKERS")[0].splitlines()[-2].split()[0]
    assert queues.bare("redrive", "--yes", "12345", last).code == 0
