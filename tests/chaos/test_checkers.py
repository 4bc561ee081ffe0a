"""The judges of chaos can object: each is shown logs in which exactly one thing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.audit import Change
from chaos.campaign import judge
from chaos.facts import ActionRow, Facts, Operation, Parcel, Remembered, Run, Told
from chaos.fleet_checkers import progress_times, recovery_times
from chaos.nemeses import Fault
from chaos.notes import Notes, Tail, read_notes
from chaos.setting import PLACES, SHARDS
from chaos.watching import Sample, Snapshot
from matrixsched.rules.names import shard_of

LEASE_S = 2.0


def change(seq: int, at: float, place: str, op: str, **given: Any) -> Change:
    usual = dict.fromkeys(Change._fields) | {"writer": "w1", "id": "a", "succeeded": 0, "failed": 0, "interrupted": 0}
    return Change(**(usual | {"seq": seq, "at": at, "place": place, "op": op} | given))


def claimed(seq: int, at: float, attempt: int = 1, writer: str = "w1", **given: Any) -> Change:
    """A row is claimed; the first time as it is moved."""
    before: dict[str, Any] = {} if attempt == 1 else {"was_guid": "g", "was_attempt": attempt - 1}
    usual = {"guid": "g", "attempt": attempt, "claim": f"s{attempt}", "due": at + LEASE_S, "writer": writer}
    return change(seq, at, "row", "I" if attempt == 1 else "U", **(usual | before | given))


def recorded(seq: int, at: float, attempt: int = 1, writer: str = "w1", interrupted: int = 0) -> list[Change]:
    row = {"was_guid": "g", "was_attempt": attempt, "was_claim": f"s{attempt}", "was_due": at + 1}
    action = {"guid": "g", "was_guid": "g", "state": "done", "was_state": "live", "succeeded": 1}
    return [
        change(seq, at, "row", "D", writer=writer, **row),
        change(seq + 1, at, "action", "U", writer=writer, interrupted=interrupted, **action),
    ]


def called(name: str, at: float, what: str = "schedule", **given: Any) -> Operation:
    usual = {"not_before": at, "handler": "work", "payload": 0.1, "reply": "ok", "replied": at + 0.01, "guid": "g"}
    return Operation(name, what, given.pop("ids", ("a",)), at, **(usual | given))


def ran(begun: float, attempt: int = 1, writer: str = "w1", ending: str | None = "done", **given: Any) -> Run:
    usual = {"id": "a", "guid": "g", "tick": 0, "handler": "work", "due": 10.0, "ended": begun + 0.1}
    return Run(writer=writer, attempt=attempt, begun=begun, ending=ending, **(usual | given))


def quiet_run() -> Facts:
    """An action is scheduled, claimed, run and recorded; a task is put and handled, another one told of its place."""
    take = {"id": "7", "guid": "r1", "attempt": 0, "due": 12.0}
    return Facts(
        operations=[
            called("c1", 10.0),
            called("c2", 10.0, "put", ids=("p-1",), guid=None),
            called("c3", 10.0, "enqueue", ids=("s-1",), guid=None),
        ],
        runs=[ran(10.1)],
        changes=[
            claimed(1, 10.05),
            *recorded(2, 10.3),
            change(4, 10.1, "task", "U", **take),
            change(5, 10.4, "task", "D", id="7", was_guid="r1", was_due=12.0),
        ],
        actions={"a": ActionRow("a", "g", "done", 1, 0, 0)},
        told=[Told("s-1", 10.2, "w1")],
        parcels=[Parcel("p-1", "7", "r1", at, "w1", done) for at, done in ((10.2, False), (10.3, True))],
        snapshots=[Snapshot(10.2, [], PLACES)],
        samples={"w1": [Sample(10.0 + number, 20, 5) for number in range(60)]},
        incarnations=[("w1", 101, 0.0, 100.0), ("w2", 102, 0.0, 100.0)],
    )


def taken_over_run() -> Facts:
    """The same, but w1 is killed in its first attempt, and w2 makes the second one."""
    facts = quiet_run()
    facts.runs = [ran(10.1, ending=None, ended=None), ran(12.1, attempt=2, writer="w2", due=12.05)]
    again = claimed(2, 12.06, 2, "w2", was_claim="s1", was_due=12.05, interrupted=1)
    facts.changes = [claimed(1, 10.05), again, *recorded(3, 12.3, 2, "w2", interrupted=1), *facts.changes[3:]]
    facts.faults = [Fault("kill", "w1", 10.2, 10.2)]
    facts.incarnations = [("w1", 101, 0.0, 10.2), ("w2", 102, 0.0, 100.0), ("w3", 103, 0.0, 100.0)]
    facts.incarnations += [("w4", 104, 0.0, 100.0)]
    locks = [change(0, 5.0, "lock", "U", id=f"{n + 3}", guid=f"l{n}", writer=f"w{n}") for n in (1, 2, 3, 4)]
    facts.changes[:0] = locks
    facts.actions = {"a": ActionRow("a", "g", "done", 1, 0, 1)}
    facts.history = [Remembered("g", 1, "interrupted")]
    return facts


def objecting(facts: Facts) -> dict[str, list[str]]:
    return {verdict.name: verdict.objections for verdict in judge(facts) if verdict.objections}


def test_nobody_objects_to_a_quiet_run_nor_to_one_with_a_kill():
    assert objecting(quiet_run()) == {}
    assert objecting(taken_over_run()) == {}


def test_every_judge_says_in_one_sentence_what_it_is_for():
    for verdict in judge(Facts()):
        assert verdict.promise.endswith("."), verdict.name
        assert verdict.promise.count("\n") == 0, verdict.name


Spoil = Callable[[Facts], object]


def not_run(facts: Facts) -> None:
    facts.runs[0].ending = None


def not_recorded(facts: Facts) -> None:
    facts.actions["a"] = ActionRow("a", "g", "live", 0, 0, 0)


def nobody_asked(facts: Facts) -> None:
    facts.runs.append(ran(11.0, id="b", guid="h"))
    facts.changes.append(claimed(9, 10.9, id="b", guid="h"))


def another_version(facts: Facts) -> None:
    facts.runs.append(ran(11.0, guid="h"))
    facts.changes.append(claimed(9, 10.9, guid="h"))


def too_early(facts: Facts) -> None:
    facts.operations[0].not_before = 10.2


def earlier_than_its_row_was_due(facts: Facts) -> None:
    facts.changes[0] = claimed(1, 10.05, was_due=10.15)


def claimed_after_it_was_cancelled(facts: Facts) -> None:
    facts.operations.append(called("c9", 10.02, "cancel", guid="h", replied=10.03))
    facts.actions["a"] = ActionRow("a", "h", "cancelled", 0, 0, 0)


def run_twice(facts: Facts) -> None:
    facts.runs.insert(0, ran(10.06, attempt=0, writer="w2"))


def taken_over_without_a_fault(facts: Facts) -> None:
    facts.faults.clear()


def taken_over_from_somebody_else(facts: Facts) -> None:
    facts.faults = [Fault("kill", "w2", 10.2, 10.2)]


def done_by_both_without_a_fault(facts: Facts) -> None:
    facts.runs[0] = ran(10.1)
    facts.faults.clear()


def attempt_missing(facts: Facts) -> None:
    facts.changes[5] = claimed(2, 12.06, 3, "w2", claim="s2", was_claim="s1", was_due=12.05, interrupted=1)
    facts.runs[1].attempt = 3


def begun_by_another(facts: Facts) -> None:
    facts.runs[0].writer = "w2"


def at_the_same_time(facts: Facts) -> None:
    facts.runs[0].ended = 12.5
    facts.runs[0].ending = "cancelled"
    facts.faults = [Fault("kill", "w3", 10.2, 10.2)]


def lease_cut_short(facts: Facts) -> None:
    facts.changes[5] = facts.changes[5]._replace(was_due=12.08)


def zombie_extends(facts: Facts) -> None:
    zombie = change(99, 12.1, "row", "U", guid="g", was_guid="g", attempt=2, was_attempt=2, claim="s2", was_claim="s2")
    facts.changes.insert(6, zombie._replace(due=14.1, was_due=14.06))


def zombie_records(facts: Facts) -> None:
    facts.changes[6:8] = recorded(3, 12.3, 2, "w1", interrupted=1)


def success_without_a_run(facts: Facts) -> None:
    facts.runs[1].ended = 12.9


def success_counted_twice(facts: Facts) -> None:
    facts.changes.append(facts.changes[2]._replace(seq=9))


def miscounted(facts: Facts) -> None:
    facts.actions["a"] = ActionRow("a", "g", "done", 1, 0, 0)


def forgotten_in_the_history(facts: Facts) -> None:
    facts.history.clear()


def failures_forgotten(facts: Facts) -> None:
    facts.operations[0].handler, facts.operations[0].payload = "flaky", 2


def two_rows(facts: Facts) -> None:
    facts.snapshots.append(Snapshot(11.0, [("a", 2)], 0))


def left_over(facts: Facts) -> None:
    facts.undone = 1


def rushed(facts: Facts) -> None:
    for number in range(40):
        name = f"r-{number}"
        facts.operations.append(called(f"c-{name}", 10.0, ids=(name,), guid=name))
        facts.runs.append(ran(10.1, id=name, guid=name))
        facts.changes.append(claimed(20 + number, 10.05, id=name, guid=name))
        facts.actions[name] = ActionRow(name, name, "done", 1, 0, 0)


def one_place_too_many(facts: Facts) -> None:
    facts.snapshots.append(Snapshot(11.0, [], PLACES + 1))


def place_untold(facts: Facts) -> None:
    facts.told.clear()


def place_of_nobody(facts: Facts) -> None:
    facts.told.append(Told("s-2", 10.2, "w1"))


def parcel_lost(facts: Facts) -> None:
    facts.parcels.pop()


def parcel_of_nobody(facts: Facts) -> None:
    facts.parcels.append(facts.parcels[-1]._replace(token="p-2"))


def parcel_twice(facts: Facts) -> None:
    facts.parcels.append(facts.parcels[-1]._replace(at=10.35, receipt="r2"))


def parcel_begun_late(facts: Facts) -> None:
    facts.parcels[0] = facts.parcels[0]._replace(at=12.5)


def taken_from_its_taker(facts: Facts) -> None:
    facts.changes.append(change(9, 10.2, "task", "U", id="7", guid="r2", was_guid="r1", was_due=12.0))


def settled_by_another(facts: Facts) -> None:
    facts.changes[-1] = facts.changes[-1]._replace(writer="w2")


def settled_too_late(facts: Facts) -> None:
    facts.changes[-1] = facts.changes[-1]._replace(at=14.0)


def recovered_late(facts: Facts) -> None:
    facts.runs[1] = replace(facts.runs[1], begun=13.3, ended=13.35)
    facts.changes[6:8] = recorded(3, 13.4, 2, "w2", interrupted=1)


def no_progress(facts: Facts) -> None:
    facts.faults.append(Fault("restart", None, 4.0, 5.0))


def leaked_files(facts: Facts) -> None:
    facts.samples["w1"] = [Sample(10.0 + number, 20 + number, 5) for number in range(60)]


def leaked_threads(facts: Facts) -> None:
    facts.samples["w1"] = [Sample(10.0 + number, 20, 5 + number) for number in range(60)]


def ended_by_itself(facts: Facts) -> None:
    facts.left_alone.append("w3, exit code 1")


def surprised(facts: Facts) -> None:
    facts.complaints.append("w3: Traceback")


def torn(facts: Facts) -> None:
    facts.integrity = "row 7 missing from index"


WRONG: list[tuple[Callable[[], Facts], Spoil, set[str]]] = [
    (quiet_run, not_run, {"lost", "made_up"}),
    (quiet_run, not_recorded, {"unfinished", "counted"}),
    (quiet_run, nobody_asked, {"unexpected"}),
    (quiet_run, another_version, {"unexpected"}),
    (quiet_run, too_early, {"early"}),
    (quiet_run, earlier_than_its_row_was_due, {"early"}),
    (quiet_run, claimed_after_it_was_cancelled, {"superseded"}),
    (quiet_run, run_twice, {"doubled", "claimed_once", "overlapping"}),
    (taken_over_run, taken_over_without_a_fault, {"abandoned", "overlapping"}),
    (taken_over_run, taken_over_from_somebody_else, {"abandoned", "overlapping"}),
    (taken_over_run, done_by_both_without_a_fault, {"doubled", "abandoned"}),
    (taken_over_run, attempt_missing, {"claimed_once"}),
    (quiet_run, begun_by_another, {"claimed_once"}),
    (taken_over_run, at_the_same_time, {"abandoned", "overlapping"}),
    (taken_over_run, lease_cut_short, {"fenced"}),
    (taken_over_run, zombie_extends, {"fenced"}),
    (taken_over_run, zombie_records, {"fenced", "recorded_by_others"}),
    (taken_over_run, success_without_a_run, {"made_up"}),
    (quiet_run, success_counted_twice, {"made_up"}),
    (taken_over_run, miscounted, {"counted"}),
    (taken_over_run, forgotten_in_the_history, {"counted"}),
    (quiet_run, failures_forgotten, {"counted"}),
    (quiet_run, two_rows, {"one_live_row"}),
    (quiet_run, left_over, {"restless"}),
    (quiet_run, rushed, {"too_fast"}),
    (quiet_run, one_place_too_many, {"overfull"}),
    (quiet_run, place_untold, {"untold"}),
    (quiet_run, place_of_nobody, {"untold"}),
    (quiet_run, parcel_lost, {"undelivered"}),
    (quiet_run, parcel_of_nobody, {"undelivered"}),
    (quiet_run, parcel_twice, {"delivered_twice"}),
    (quiet_run, parcel_begun_late, {"begun_too_late"}),
    (quiet_run, taken_from_its_taker, {"settled_by_others"}),
    (quiet_run, settled_by_another, {"settled_by_others"}),
    (quiet_run, settled_too_late, {"settled_by_others"}),
    (taken_over_run, recovered_late, {"slow_recovery"}),
    (quiet_run, no_progress, {"slow_progress"}),
    (quiet_run, leaked_files, {"leaking"}),
    (quiet_run, leaked_threads, {"leaking"}),
    (quiet_run, ended_by_itself, {"ended"}),
    (quiet_run, surprised, {"complaining"}),
    (quiet_run, torn, {"corrupt"}),
]


@pytest.mark.parametrize(("make", "spoil", "judges"), WRONG, ids=[spoil.__name__ for _, spoil, _ in WRONG])
def test_what_is_wrong_is_seen_by_its_judges(make: Callable[[], Facts], spoil: Spoil, judges: set[str]):
    facts = make()
    spoil(facts)
    assert set(objecting(facts)) == judges


def test_every_judge_is_shown_something_wrong():
    assert {verdict.name for verdict in judge(Facts())} == {name for _, _, judges in WRONG for name in judges}


def test_what_was_asked_by_a_client_that_died_may_have_been_carried_out_or_not():
    facts = quiet_run()
    facts.operations.append(called("c9", 10.02, "cancel", reply="open", replied=None, guid=None))
    assert objecting(facts) == {}
    facts.operations[0].reply, facts.operations[0].guid = "unknown", None
    facts.runs.clear()
    facts.changes = facts.changes[3:]
    facts.actions.clear()
    assert objecting(facts) == {}


def test_recovery_does_not_count_where_another_fault_came_between():
    assert recovery_times(taken_over_run()).clean == [pytest.approx(1.9)]
    for fault in (
        Fault("restart", None, 11.0, 11.5),
        Fault("stop", "w2", 12.06, 12.09),
        Fault("stop", "w3", 10.5, 11.5),  # too few were left
    ):
        facts = taken_over_run()
        facts.faults.append(fault)
        assert (recovery_times(facts).clean, recovery_times(facts).hit_again) == ([], 1)


def test_recovery_does_not_count_where_somebody_who_was_killed_too_kept_the_shard():
    facts = taken_over_run()
    shard = f"{shard_of('a', SHARDS)}"
    facts.changes.insert(5, change(1, 11.0, "lock", "U", id=shard, guid="l9", writer="w3"))
    facts.faults.append(Fault("kill", "w3", 11.1, 11.1))
    assert (recovery_times(facts).clean, recovery_times(facts).hit_again) == ([], 1)
    facts = taken_over_run()
    facts.changes.insert(5, change(1, 11.0, "lock", "U", id=f"{(int(shard) + 1) % SHARDS}", guid="l9", writer="w3"))
    facts.faults.append(Fault("kill", "w3", 11.1, 11.1))
    assert len(recovery_times(facts).clean) == 1


def test_progress_is_from_the_end_of_a_restart_to_the_next_claim():
    facts = quiet_run()
    facts.faults = [Fault("restart", None, 7.0, 8.0), Fault("restart", None, 9.0, 9.5)]
    assert progress_times(facts).clean == [pytest.approx(0.55)]
    assert progress_times(facts).hit_again == 1


def test_half_a_note_of_a_process_that_was_killed_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text('\n{"kind":"begun","id":"a"}\n\n{"ki')
    Notes(path).write(kind="done", id="a")
    assert [note["kind"] for note in read_notes(path)] == ["begun", "done"]
    assert Tail(path).look() == {"begun": 1, "done": 1}
