"""The clock of this machine, compared with the database's, by which everything is decided."""

from __future__ import annotations

from datetime import timedelta

from matrixsched.ops.findings import Finding, fault, ok, warning
from matrixsched.ops.render import age
from matrixsched.rules.explanation import SILENT_AFTER
from matrixsched.store.facts import ClockReading

TOLERATED = timedelta(seconds=1)


def judge_clock(reading: ClockReading) -> Finding:
    ahead, asked = reading.ahead, f"asked in {reading.round_trip / timedelta(milliseconds=1):.1f} ms"
    if abs(ahead) <= TOLERATED:
        return ok("clock", f"this machine's and the database's agree to a second ({asked})")
    told = fault if abs(ahead) > SILENT_AFTER else warning
    side = "ahead of" if ahead > timedelta(0) else "behind"
    return told(
        "clock",
        f"the database's clock is {age(abs(ahead))} {side} this machine's ({asked}): leases and due times go by the "
        "database's, but `at=` that a program reckons from its own clock is off by as much",
        "set both by NTP: `timedatectl set-ntp true`, here and there",
    )
