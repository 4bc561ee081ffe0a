"""How findings look: the verdict and the check, what was seen, and below it what to do."""

from __future__ import annotations

from collections.abc import Sequence

from rich.padding import Padding
from rich.text import Text

from matrixsched.ops.findings import Finding, Verdict, count, row_with_remedy
from matrixsched.ops.render import console, show_rows, visible

_STYLES = {Verdict.FAULT: "bold red", Verdict.WARNING: "yellow", Verdict.NOTE: "cyan", Verdict.OK: "green"}


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        show_rows([row_with_remedy(finding) for finding in findings], as_json=True)
        return
    width = max(len(finding.check) for finding in findings)
    indent = len(Verdict.WARNING) + width + 4
    screen = console()
    screen.soft_wrap = False
    for finding in findings:
        head = f"{finding.verdict:{len(Verdict.WARNING)}}  {finding.check:{width}}  "
        body = Text(visible(finding.detail))
        if finding.remedy is not None:
            body.append(f"\n→ {visible(finding.remedy)}", style="bold")
        if not screen.is_terminal:
            lines = body.plain.replace("\n", f"\n{' ' * indent}")
            screen.print(Text(f"{head}{lines}"), soft_wrap=True)
            continue
        screen.print(Text(head, style=_STYLES[finding.verdict], end=""))
        screen.print(Padding(body, (0, 0, 0, indent)))


def said(findings: Sequence[Finding]) -> str:
    faults, warnings = count(findings, Verdict.FAULT), count(findings, Verdict.WARNING)
    if not faults and not warnings:
        return "nothing is wrong. `matrixsched top` shows how the work goes on."
    counts = f"{faults} {'fault' if faults == 1 else 'faults'}, {warnings} {'warning' if warnings == 1 else 'warnings'}"
    return f"{counts}: what to do stands behind each arrow; then ask again."
