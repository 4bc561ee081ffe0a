"""The run as tables and a chart in the terminal, as a picture, and as JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from playing import Check, show_verdicts
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sending.drawing import draw
from sending.judging import Run
from sending.minutes import minutes

BAR = 40


class Showing:
    def __init__(self, run: Run, checks: Sequence[Check]) -> None:
        self._run = run
        self._checks = checks
        self._kills = list(run.killed.values())
        self._windows = run.records.windows
        self._starts = run.starts
        self._by_template = run.starts_by_template
        self._minutes = minutes(run)

    def show(self, console: Console) -> None:
        console.print(self._intervals())
        console.print(self._templates())
        console.print(self._templates_by_minute())
        show_verdicts(self._checks, console)

    def _intervals(self) -> Table:
        table = Table(title="sent in each interval", box=None, header_style="bold", pad_edge=False)
        for heading in ("INTERVAL", "MAX", "GRANTED", "USED", "STARTED"):
            table.add_column(heading, justify="left" if heading == "INTERVAL" else "right")
        table.add_column("STARTED OF MAX")
        for number, window in enumerate(self._windows):
            started = self._started(self._starts, number)
            bar = "█" * round(BAR * started / max(1, window.max_to_send))
            killed = "".join(
                " ✗ a worker is killed"
                for at in self._kills
                if window.begins.timestamp() <= at < window.ends.timestamp()
            )
            table.add_row(
                f"{window.begins:%H:%M:%S}",
                *(f"{count:,}" for count in (window.max_to_send, window.granted, window.used, started)),
                Text(bar, style="cyan") + Text(killed, style="red"),
            )
        return table

    def _templates(self) -> Table:
        table = Table(title="sent of each template", box=None, header_style="bold", pad_edge=False)
        table.add_column("TEMPLATE")
        table.add_column("DISTRIBUTION")
        for heading in ("WEIGHT", "MAXIMUM", "MESSAGES", "GRANTED", "STARTED", "DONE", "EXPIRED", "LAST"):
            table.add_column(heading, justify="right")
        for row in self._template_rows():
            table.add_row(
                row["template"],
                row["distribution"],
                f"{row['weight']:g}",
                row["maximum"] or "",
                *(f"{row[name]:,}" for name in ("messages", "granted", "started", "done", "expired")),
                f"{row['last_s']:.0f} s",
            )
        return table

    def _templates_by_minute(self) -> Table:
        table = Table(title="sent of what was granted, by minute", box=None, header_style="bold", pad_edge=False)
        table.add_column("TEMPLATE")
        for minute in self._minutes:
            table.add_column(minute.name.upper(), justify="right")
        for name in self._run.campaigns:
            table.add_row(name, *(f"{minute.started[name]:,} of {minute.granted[name]:,}" for minute in self._minutes))
        totals = [f"{minute.started.total():,} of {minute.granted.total():,}" for minute in self._minutes]
        table.add_row("all", *totals, style="bold")
        return table

    def _template_rows(self) -> list[dict[str, Any]]:
        begins = self._starts[0] if self._starts else 0.0
        rows = []
        for name, template in self._run.campaigns.items():
            messages = list(self._run.records.of(name))
            starts = self._by_template[name]
            rows.append(
                {
                    "template": name,
                    "distribution": template.distribution,
                    "weight": template.weight,
                    "maximum": None if template.max_speed is None else str(template.max_speed),
                    "messages": len(messages),
                    "granted": sum(window.granted_to(name) for window in self._windows),
                    "started": len(starts),
                    "done": sum(message.state == "done" for message in messages),
                    "expired": sum(message.state == "expired" for message in messages),
                    "last_s": starts[-1] - begins if starts else 0.0,
                }
            )
        return rows

    def as_json(self) -> dict[str, Any]:
        return {
            "intervals": [
                {
                    "begins": window.begins.isoformat(),
                    "max": window.max_to_send,
                    "granted": window.granted,
                    "used": window.used,
                    "started": self._started(self._starts, number),
                }
                for number, window in enumerate(self._windows)
            ],
            "templates": self._template_rows(),
            "minutes": [
                {"minute": minute.name, "granted": dict(minute.granted), "started": dict(minute.started)}
                for minute in self._minutes
            ],
            "checks": [{"promise": check.promise, "kept": check.kept, "found": check.found} for check in self._checks],
        }

    def _started(self, starts: Sequence[float], number: int) -> int:
        window = self._windows[number]
        return bisect_left(starts, window.ends.timestamp()) - bisect_left(starts, window.begins.timestamp())

    def as_svg(self) -> str:
        return draw(self._run, self._minutes)
