"""The judges of chaos can object: each is shown logs in which exactly one thing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.audit import Change
from chaos.campaign import judge
from chaos.facts import ActionRow, Facts, Remembered, Told
from chaos.made_up import (
    altered,
    called,
    change,
    claimed,
    locked,
    place,
    quiet_run,
    ran,
    spot,
    taken_over_run,
)
from chaos.nemeses import Fault
from chaos.notes import Notes, Tail, read_notes
from chaos.setting import PLACES
from chaos.watching import Sample, Snapshot


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


def too_early_among_many(facts: Facts) -> None:
    facts.operations[0] = called("c1", 10.0, "schedule_many", guid=None, not_before=10.2)


def earlier_than_its_row_was_due(facts: Facts) -> None:
    altered(facts, "row", 0, was_due=10.15)


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
    altered(facts, "row", 1, attempt=3, was_attempt=2)
    facts.runs[1].attempt = 3


def begun_by_another(facts: Facts) -> None:
    facts.runs[0].writer = "w2"


def at_the_same_time(facts: Facts) -> None:
    facts.runs[0].ended = 12.5
    facts.runs[0].ending = "cancelled"
    facts.faults = [Fault("kill", "w3", 10.2, 10.2)]


def lease_cut_short(facts: Facts) -> None:
    altered(facts, "row", 1, was_due=12.08)


def zombie_extends(facts: Facts) -> None:
    zombie = change(99, 12.1, "row", "U", guid="g", was_guid="g", attempt=2, was_attempt=2, claim="s2", was_claim="s2")
    facts.changes.insert(spot(facts, "row", 2), zombie._replace(due=14.1, was_due=14.06))


def zombie_records(facts: Facts) -> None:
    altered(facts, "row", 2, writer="w1")
    altered(facts, "action", 0, writer="w1")


def zombie_records_a_failure(facts: Facts) -> None:
    zombie_records(facts)
    altered(facts, "action", 0, succeeded=0, failed=1)
    facts.actions["a"] = ActionRow("a", "g", "done", 0, 1, 1)
    facts.history.append(Remembered("g", 2, "failed"))
    facts.operations[0].handler, facts.operations[0].payload = "flaky", 1


def claimed_under_the_guid_of_another(facts: Facts) -> None:
    altered(facts, "row", 0, claim="s9")
    altered(facts, "row", 1, was_claim="s9")


def claimed_by_another_than_the_holder(facts: Facts) -> None:
    facts.changes.insert(spot(facts, "row", 0), locked(0, 10.0, "s1", "w2"))


def claimed_after_the_release(facts: Facts) -> None:
    facts.changes.insert(spot(facts, "row", 0), locked(0, 10.0, "s1", state="free"))


def success_without_a_run(facts: Facts) -> None:
    facts.runs[1].ended = 12.9


def success_counted_twice(facts: Facts) -> None:
    facts.changes.append(facts.changes[spot(facts, "action", 0)]._replace(seq=9))


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


def spent_without_a_claim(facts: Facts) -> None:
    facts.changes.append(change(21, 10.06, "grant", "U", id="news", attempt=2, was_attempt=1, note="5"))


def spent_and_taken_back(facts: Facts) -> None:
    facts.changes.append(change(21, 10.06, "grant", "U", id="news", attempt=1, was_attempt=2, note="5"))


def claimed_without_spending(facts: Facts) -> None:
    altered(facts, "row", 0, was_state="quota|news|UTC|5||work")


def spent_by_another(facts: Facts) -> None:
    claimed_without_spending(facts)
    spent_without_a_claim(facts)
    altered(facts, "grant", 1, writer="w2")


def spent_more_than_granted(facts: Facts) -> None:
    claimed_without_spending(facts)
    spent_without_a_claim(facts)
    altered(facts, "grant", 1, note="1")


def one_place_too_many_for_a_moment(facts: Facts) -> None:
    given = [place(20 + number, 11.0, f"s-1{number}", "acquired") for number in range(PLACES + 1)]
    facts.changes += [*given, change(30, 11.001, "hold", "D", id="s-10", was_state="acquired")]


def overtaken_by_the_less_important(facts: Facts) -> None:
    facts.changes.insert(spot(facts, "hold", 0), place(5, 9.0, "s-2", "waiting", note="5", due=10.05))


def overtaken_by_the_later(facts: Facts) -> None:
    facts.changes.insert(spot(facts, "hold", 0), place(5, 9.0, "s-2", "waiting", due=9.0))


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


def handed_out_again(facts: Facts) -> None:
    facts.parcels += [parcel._replace(at=parcel.at + 0.05) for parcel in facts.parcels]


def parcel_begun_late(facts: Facts) -> None:
    facts.parcels[0] = facts.parcels[0]._replace(at=12.5)


def taken_from_its_taker(facts: Facts) -> None:
    facts.changes.append(change(9, 10.2, "task", "U", id="7", guid="r2", was_guid="r1", was_due=12.0))


def settled_by_another(facts: Facts) -> None:
    altered(facts, "task", 1, writer="w2")


def settled_too_late(facts: Facts) -> None:
    altered(facts, "task", 1, at=14.0)


def recovered_late(facts: Facts) -> None:
    facts.runs[1] = replace(facts.runs[1], begun=13.3, ended=13.35)
    altered(facts, "row", 2, at=13.4, was_due=14.4)
    altered(facts, "action", 0, at=13.4)


def no_progress(facts: Facts) -> None:
    facts.faults.append(Fault("restart", None, 4.0, 5.0))


def never_ticked(facts: Facts) -> None:
    facts.operations += [
        called("c8", 20.0, ids=("t-1",), handler="tick", guid="t"),
        called("c9", 40.0, "cancel", ids=("t-1",), guid="u"),
    ]
    facts.actions["t-1"] = ActionRow("t-1", "u", "cancelled", 0, 0, 0)


def nothing_happened(facts: Facts) -> None:
    vars(facts).update(vars(Facts()))


def hardly_anything_was_claimed(facts: Facts) -> None:
    for number in range(2):
        facts.operations.append(called(f"c{number}", 10.0, "cancel", ids=(f"b{number}",), guid=None))
        facts.operations.append(called(f"d{number}", 9.0, ids=(f"b{number}",), guid=None))
        facts.actions[f"b{number}"] = ActionRow(f"b{number}", "h", "cancelled", 0, 0, 0)


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
    (quiet_run, too_early_among_many, {"early"}),
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
    (taken_over_run, zombie_records_a_failure, {"fenced", "recorded_by_others", "counted"}),
    (quiet_run, claimed_under_the_guid_of_another, {"claimed_without_shard"}),
    (quiet_run, claimed_by_another_than_the_holder, {"claimed_without_shard"}),
    (quiet_run, claimed_after_the_release, {"claimed_without_shard"}),
    (taken_over_run, success_without_a_run, {"made_up"}),
    (quiet_run, success_counted_twice, {"made_up"}),
    (taken_over_run, miscounted, {"counted"}),
    (taken_over_run, forgotten_in_the_history, {"counted"}),
    (quiet_run, failures_forgotten, {"counted"}),
    (quiet_run, two_rows, {"one_live_row"}),
    (quiet_run, left_over, {"restless"}),
    (quiet_run, rushed, {"too_fast"}),
    (quiet_run, spent_without_a_claim, {"misspent"}),
    (quiet_run, spent_and_taken_back, {"misspent"}),
    (quiet_run, claimed_without_spending, {"misspent"}),
    (quiet_run, spent_by_another, {"misspent"}),
    (quiet_run, spent_more_than_granted, {"misspent"}),
    (quiet_run, one_place_too_many, {"overfull"}),
    (quiet_run, one_place_too_many_for_a_moment, {"overfull"}),
    (quiet_run, overtaken_by_the_less_important, {"overtaken"}),
    (quiet_run, overtaken_by_the_later, {"overtaken"}),
    (quiet_run, place_untold, {"untold", "idle"}),
    (quiet_run, place_of_nobody, {"untold"}),
    (quiet_run, parcel_lost, {"undelivered"}),
    (quiet_run, parcel_of_nobody, {"undelivered"}),
    (quiet_run, parcel_twice, {"delivered_twice"}),
    (quiet_run, handed_out_again, {"handed_out_twice"}),
    (quiet_run, parcel_begun_late, {"begun_too_late"}),
    (quiet_run, taken_from_its_taker, {"settled_by_others"}),
    (quiet_run, settled_by_another, {"settled_by_others"}),
    (quiet_run, settled_too_late, {"settled_by_others"}),
    (taken_over_run, recovered_late, {"slow_recovery"}),
    (quiet_run, no_progress, {"slow_progress"}),
    (taken_over_run, never_ticked, {"missed_ticks"}),
    (quiet_run, nothing_happened, {"idle"}),
    (quiet_run, hardly_anything_was_claimed, {"idle"}),
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
    facts = quiet_run()
    add_another_action(facts)
    facts.operations[0].reply, facts.operations[0].guid = "unknown", None
    del facts.runs[0]
    del facts.changes[spot(facts, "row", 0) : spot(facts, "action", 0) + 1]
    del facts.actions["a"]
    assert objecting(facts) == {}


def add_another_action(facts: Facts) -> None:
    facts.operations.append(called("c7", 10.0, ids=("b",), guid="h"))
    facts.runs.append(ran(10.1, id="b", guid="h"))
    facts.changes.append(claimed(20, 10.05, id="b", guid="h"))
    facts.actions["b"] = ActionRow("b", "h", "done", 1, 0, 0)


@pytest.mark.parametrize(
    "waiting",
    [
        place(5, 9.5, "s-2", "waiting", note="5"),  # a balance may have been under way
        place(5, 9.0, "s-2", "waiting", note="0"),
        place(5, 9.0, "s-2", "waiting", due=10.01),
    ],
)
def test_places_go_to_the_most_important_that_a_balance_can_have_seen(waiting: Change):
    facts = quiet_run()
    facts.changes.insert(spot(facts, "hold", 0), waiting)
    assert objecting(facts) == {}


def test_a_claim_before_a_gate_that_spends_what_it_takes_is_as_it_should_be():
    facts = quiet_run()
    claimed_without_spending(facts)
    spent_without_a_claim(facts)
    assert objecting(facts) == {}


def test_a_claim_that_began_before_the_answer_to_a_cancellation_may_be_noted_after_it():
    facts = quiet_run()
    facts.operations.append(called("c9", 10.02, "cancel", guid="h", replied=10.03))
    facts.actions["a"] = ActionRow("a", "h", "cancelled", 0, 0, 0)
    altered(facts, "row", 0, due=12.02)
    assert objecting(facts) == {}


def test_in_which_order_a_statement_gives_places_says_nothing():
    facts = quiet_run()
    overtaken_by_the_less_important(facts)
    facts.changes.insert(spot(facts, "hold", 3), place(7, 10.1, "s-2", "acquired", note="5", due=10.05))
    assert objecting(facts) == {}


def test_who_was_held_up_may_give_a_place_by_what_it_has_read():
    facts = quiet_run()
    overtaken_by_the_less_important(facts)
    facts.faults.append(Fault("delay", "w1", 9.0, 11.0))
    assert objecting(facts) == {}


def test_half_a_note_of_a_process_that_was_killed_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text('\n{"kind":"begun","id":"a"}\n\n{"ki')
    Notes(path).write(kind="done", id="a")
    assert [note["kind"] for note in read_notes(path)] == ["begun", "done"]
    assert Tail(path).look() == {"begun": 1, "done": 1}
