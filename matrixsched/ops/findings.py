"""What a look at something found: how bad it is, what was seen, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from matrixsched.ops.render import Facts


class Verdict(StrEnum):
    FAULT = "fault"
    """Something does not work, or what was promised may not be kept."""
    WARNING = "warning"
    """It works, but badly, or not for long."""
    NOTE = "note"
    """Worth knowing."""
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    detail: str
    remedy: str | None = None
    """What to type or to do; None where nothing is to be done, or where the detail says it."""

    @property
    def is_ok(self) -> bool:
        return self.verdict is Verdict.OK


def ok(check: str, detail: str) -> Finding:
    return Finding(check, Verdict.OK, detail)


def note(check: str, detail: str, remedy: str | None = None) -> Finding:
    return Finding(check, Verdict.NOTE, detail, remedy)


def warning(check: str, detail: str, remedy: str | None = None) -> Finding:
    return Finding(check, Verdict.WARNING, detail, remedy)


def fault(check: str, detail: str, remedy: str | None = None) -> Finding:
    return Finding(check, Verdict.FAULT, detail, remedy)


def count(findings: Iterable[Finding], verdict: Verdict) -> int:
    return sum(finding.verdict is verdict for finding in findings)


def row(finding: Finding) -> Facts:
    return {"check": finding.check, "verdict": finding.verdict.value, "detail": finding.detail}


def row_with_remedy(finding: Finding) -> Facts:
    return {**row(finding), "remedy": finding.remedy}
