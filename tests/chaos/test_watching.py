"""What is seen of the processes themselves: who ended badly, and who was kept from running."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.fleet import Incarnation
from chaos.nemeses import Fault
from chaos.nursery import Child
from chaos.watching import Wait, is_confirmed, waited_for_processor


@pytest.mark.parametrize(
    ("killed", "asked_to_end", "code", "badly"),
    [
        (True, False, -9, False),
        (False, True, 0, False),
        (False, True, 1, True),
        (False, True, None, True),  # it had to be killed in the end
        (False, False, 0, True),  # by itself, whenever: also while everything was drained
    ],
)
def test_who_ends_by_itself_or_not_well_is_told_from_others(
    killed: bool, asked_to_end: bool, code: int | None, badly: bool
):
    process = Child(101)
    process.returncode = code
    one = Incarnation("w1", process, Path("w1.log"), 0.0, killed=killed, asked_to_end=asked_to_end)
    assert one.ended_badly is badly


@pytest.mark.parametrize(
    ("writer", "waited_s", "confirmed"),
    [("w1", 0.8, True), ("w1", 0.3, False), ("w2", 0.8, False)],
)
def test_a_worker_that_says_it_was_blocked_is_believed_if_it_was_kept_from_running(
    writer: str, waited_s: float, confirmed: bool
):
    said = Fault("stall", "w1", 10.2, 11.2)
    waits = [Wait(writer, 9.0, 10.0, 0.9), Wait(writer, 10.0, 10.9, waited_s), Wait(writer, 11.5, 12.0, 0.5)]
    assert is_confirmed(said, waits) is confirmed


def test_the_kernel_counts_how_long_a_process_waited():
    assert all(seconds >= 0 for seconds in waited_for_processor(os.getpid()).values())
    assert f"{os.getpid()}" in waited_for_processor(os.getpid())
