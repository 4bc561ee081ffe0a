"""What the demo concludes from its notes, and what it leaves behind; the demo itself is for eyes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from matrixsched.ops import demo
from matrixsched.ops.cli import main
from matrixsched.ops.demo import PlainDisplay, Show, run_demo
from matrixsched.ops.evidence import Account, Evidence, Kind, Note, Noted
from matrixsched.worker.daemon import CHORES_BEGIN_WITHIN_S

VICTIM, HEIR = 1, 2


def test_notes_are_read_once_and_only_when_whole(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path / "notes")
    assert evidence.read() == []
    (tmp_path / "notes").write_text("\nbegun 7 1.5 1 an id with spaces\t\n\ndone 7 1.7 1 an id wi")
    assert evidence.read() == [Note(Kind.BEGUN, 7, 1.5, "an id with spaces", 1)]
    with (tmp_path / "notes").open("a") as file:
        file.write("th spaces\t\n")
    assert evidence.read() == [Note(Kind.DONE, 7, 1.7, "an id with spaces", 1)]
    assert evidence.read() == []


def test_half_a_note_of_a_process_that_was_killed_spoils_no_other(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path / "notes")
    (tmp_path / "notes").write_text("\nbegun 7 1.5 1 some i")
    evidence.note(Kind.DONE, Noted("an id", 2))
    assert [(note.kind, note.id, note.attempt) for note in evidence.read()] == [(Kind.DONE, "an id", 2)]


def test_an_action_without_a_completed_run_is_lost_whatever_was_begun() -> None:
    show = Show({"a": 0.0, "b": 0.0})
    show.account.add([Note(Kind.BEGUN, VICTIM, 1, "a", 1), Note(Kind.BEGUN, VICTIM, 1, "b", 1)])
    show.account.add([Note(Kind.DONE, VICTIM, 2, "a", 1), Note(Kind.FAILED, VICTIM, 2, "b", 1)])
    assert show.finished == 1
    assert not show.is_over


def test_a_takeover_is_a_beginning_elsewhere_after_the_kill() -> None:
    show = Show({"a": 0.0}, killed_pid=VICTIM, killed_at=10.0, orphans=frozenset({"a"}))
    show.account.add([Note(Kind.BEGUN, HEIR, 5, "a", 1), Note(Kind.BEGUN, VICTIM, 9, "a", 2)])
    assert show.taken_over == []
    show.account.add([Note(Kind.BEGUN, HEIR, 13, "a", 3), Note(Kind.DONE, HEIR, 14, "a", 3)])
    assert show.taken_over == [3.0]
    assert show.is_over


def test_what_a_dead_process_had_begun_stays_under_way() -> None:
    account = Account()
    account.add([Note(Kind.BEGUN, VICTIM, 1, "a", 1), Note(Kind.BEGUN, VICTIM, 1, "b", 1)])
    account.add([Note(Kind.DONE, VICTIM, 2, "b", 1)])
    assert account.under_way(VICTIM) == {"a"}


def test_without_a_terminal_each_turn_of_the_story_is_a_line() -> None:
    lines: list[str] = []
    display, show = PlainDisplay(lines.append), Show({"a": 0.0}, message="it begins")
    for _ in range(3):
        display.update(show)
    show.message = "it ends"
    display.update(show)
    assert lines == ["0 of 1 done: it begins", "0 of 1 done: it ends"]


@pytest.mark.slow
def test_the_numbers_of_both_workers_are_left_for_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ONE_OFF", {"quick": 10, "slow": 100, "flaky": 2})
    # As long as a worker may take until it counts for the first time what is due.
    monkeypatch.setattr(demo, "SPREAD_S", CHORES_BEGIN_WITHIN_S)
    monkeypatch.setattr(demo, "KILL_AFTER_S", 0.3)
    written = io.BytesIO()
    facts, is_nothing_lost = run_demo(None, metrics=written)
    assert is_nothing_lost
    assert facts["interrupted"]
    lines = written.getvalue().decode().splitlines()
    assert any(line.startswith('matrixsched_attempts_total{handler="slow",outcome="succeeded"}') for line in lines)
    assert "matrixsched_actions_moved_total 117.0" in lines
    assert "matrixsched_worker_slots 100.0" in lines, "the killed worker still counts as one that lives"
    assert any(line.startswith("matrixsched_due_actions ") for line in lines)


def test_a_file_that_cannot_be_written_is_refused_before_the_demo_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["demo", "--metrics", str(tmp_path / "nowhere" / "metrics.txt")])
    assert end.value.code == 2
    assert "No such file or directory" in capsys.readouterr().err
