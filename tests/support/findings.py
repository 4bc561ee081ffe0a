"""Of findings, those that are not good."""

from __future__ import annotations

from collections.abc import Iterable

from matrixsched.ops.findings import Finding, Verdict


def bad(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.verdict.value, finding.check) for finding in findings if finding.verdict is not Verdict.OK]


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = [finding for finding in findings if finding.verdict is not Verdict.OK]
    return finding
