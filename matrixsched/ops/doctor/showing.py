"""How findings look: the verdict and the check, what was seen, and below it what to do."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from matrixsched.ops.findings import Finding, Verdict, count, row_with_remedy
from matrixsched.ops.render import print_table, show_rows, visible

_STYLES = {Verdict.FAULT: "bold red", Verdict.WARNING: "yellow", Verdict.NOTE: "cyan", Verdict.OK: "green"}


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        show_rows([row_with_remedy(finding) for finding in findings], as_json=True)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=len(Verdict.WARNING))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        verdict = Text(finding.verdict.value, style=_STYLES[finding.verdict])
        table.add_row(verdict, Text(finding.check), _told(finding))
    print_table(table)


def _told(finding: Finding) -> Text:
    text = Text(visible(finding.detail))
    if finding.remedy is not None:
        text.append(f"\n→ {visible(finding.remedy)}", style="bold")
    return text


def said(findings: Sequence[Finding], options: str) -> str:
    faults, warnings = count(findings, Verdict.FAULT), count(findings, Verdict.WARNING)
    if not faults and not warnings:
        return f"nothing is wrong. `matrixsched top{options}` shows how the work goes on."
    counts = f"{faults} {'fault' if faults == 1 else 'faults'}, {warnings} {'warning' if warnings == 1 else 'warnings'}"
    return f"{counts}: what to do stands behind each arrow; then ask again."
