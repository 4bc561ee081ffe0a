"""What the doctor makes of a file of SQLite, and of where it lies."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.findings import bad, only

from matrixsched.ops.doctor.file import judge_file
from matrixsched.store.facts import (
    FileFacts,
    SchemaFacts,
    SqliteFacts,
)

SECOND = timedelta(seconds=1)

FILE = FileFacts(path="/data/x.db", size=1 << 20, mode=0o644, uid=1000, is_ours_to_write=True)
GOOD_FILE = SqliteFacts(
    version=(3, 51, 3),
    file=FILE,
    wal=replace(FILE, path="/data/x.db-wal"),
    shm=replace(FILE, path="/data/x.db-shm"),
    lock=replace(FILE, path="/data/x.db.lock"),
    folder=replace(FILE, path="/data", mode=0o755),
    filesystem="ext4",
    free_bytes=10 << 30,
    journal_mode="wal",
    page_size=4096,
    page_count=1000,
    free_pages=10,
    faults=None,
    writer_waited=timedelta(0),
    is_writer_stuck=False,
    writers=(),
    schema=SchemaFacts(exists=True),
)


def test_a_file_as_it_should_be_has_nothing_but_good_findings() -> None:
    assert bad(judge_file(GOOD_FILE, "")) == []
    assert bad(judge_file(replace(GOOD_FILE, wal=None, shm=None, lock=None, faults=[]), "")) == []


@pytest.mark.parametrize(
    ("changes", "verdict", "check", "said"),
    [
        ({"version": (3, 51, 2)}, "note", "library", "SQLite 3.51.2: before 3.51.3 a rare race"),
        ({"journal_mode": "delete"}, "fault", "journal", "the journal mode was delete"),
        ({"filesystem": None}, "note", "filesystem", "does not tell"),
        ({"filesystem": "nfs4"}, "fault", "filesystem", "lies on nfs4"),
        ({"filesystem": "fuse.sshfs"}, "fault", "filesystem", "fuse.sshfs"),
        ({"filesystem": "fuse.mergerfs"}, "warning", "filesystem", "depends on the program"),
        ({"file": replace(FILE, is_ours_to_write=False)}, "fault", "permissions", "not for us to write"),
        ({"file": replace(FILE, mode=0o444)}, "fault", "permissions", "(mode 0444) is for nobody but root"),
        ({"lock": replace(FILE, is_ours_to_read=False)}, "fault", "permissions", "behind which writers queue"),
        ({"wal": replace(FILE, path="/data/x.db-wal", uid=0)}, "warning", "permissions", "another user"),
        (
            {"is_writer_stuck": True, "writer_waited": 2 * SECOND, "writers": (41,)},
            *("fault", "writers", "process 41 has kept the right to write for all of the 2.0 s"),
        ),
        ({"is_writer_stuck": True}, "fault", "writers", "some process"),
        ({"wal": replace(FILE, size=64 << 20)}, "warning", "log", "64.0 MiB"),
        ({"free_bytes": 1 << 29}, "warning", "space", "512.0 MiB free"),
        ({"free_bytes": 1 << 20}, "fault", "space", "1.0 MiB free"),
        ({"page_count": 100_000, "free_pages": 60_000}, "note", "bloat", "234.4 MiB of 390.6 MiB"),
        ({"faults": ["row 3 missing from index x"]}, "fault", "integrity", "row 3 missing"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(changes: dict[str, Any], verdict: str, check: str, said: str) -> None:
    finding = only(judge_file(replace(GOOD_FILE, **changes), ""))
    assert (finding.verdict.value, finding.check) == (verdict, check)
    assert said in finding.detail
    assert finding.remedy or changes == {"filesystem": None}


ODD = replace(FILE, path="/my data/$(x).db")
ODD_PLACE = {"file": ODD, "wal": replace(ODD, path="/my data/$(x).db-wal"), "folder": replace(ODD, path="/my data")}


@pytest.mark.parametrize(
    "changes",
    [
        {"journal_mode": "delete"},
        {"file": replace(ODD, is_ours_to_write=False)},
        {"file": replace(ODD, mode=0o444)},
        {"lock": replace(ODD, is_ours_to_read=False)},
        {"wal": replace(ODD, uid=0)},
        {"is_writer_stuck": True},
        {"wal": replace(ODD, size=100 << 20)},
        {"free_pages": 900_000, "page_count": 1_000_000},
        {"faults": ["page 3"]},
    ],
)
def test_whatever_a_file_is_called_commands_are_about_it(changes: dict[str, Any]) -> None:
    (finding,) = [one for one in judge_file(replace(GOOD_FILE, **(ODD_PLACE | changes)), "") if one.remedy]
    assert finding.remedy is not None
    (command, *_) = re.findall("`([^`]+)`", finding.remedy)
    words = shlex.split(command)
    assert [word for word in words if "data" in word] == [
        word for word in words if word.removeprefix("--reference=").startswith(ODD.path)
    ]
    assert [word for word in words if "data" in word]


def test_what_makes_room_reaches_the_same_file() -> None:
    finding = only(judge_file(replace(GOOD_FILE, free_bytes=1), " --database 'sqlite:///my data.db'"))
    assert finding.remedy == "make room, or `matrixsched prune --database 'sqlite:///my data.db'`"
