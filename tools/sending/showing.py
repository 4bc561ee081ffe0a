"""The run as tables and a chart in the terminal, as a picture, and as JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from html import escape
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sending.judging import Check, Run

BAR = 40
VERDICTS = {
    True: Text("ok    ", style="green"),
    False: Text("BROKEN", style="bold red"),
    None: Text("figure", style="cyan"),
}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 960, 420, 70, 40, 50


class Showing:
    def __init__(self, run: Run, checks: Sequence[Check]) -> None:
        self._run = run
        self._checks = checks
        self._kills = list(run.killed.values())
        self._windows = run.records.windows
        self._starts = run.starts
        self._by_template = run.starts_by_template

    def show(self, console: Console) -> None:
        console.print(self._intervals())
        console.print(self._templates())
        for check in self._checks:
            console.print(VERDICTS[check.kept] + Text(f" {check.promise}: {check.found}", style=""), soft_wrap=True)

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
            "checks": [{"promise": check.promise, "kept": check.kept, "found": check.found} for check in self._checks],
        }

    def _started(self, starts: Sequence[float], number: int) -> int:
        window = self._windows[number]
        return bisect_left(starts, window.ends.timestamp()) - bisect_left(starts, window.begins.timestamp())

    # The picture.

    def as_svg(self) -> str:
        """What was started in each interval, a colour for each template, below the line of what was allowed."""
        highest = max([1, *(window.max_to_send for window in self._windows)])
        step = (WIDTH - LEFT - 10) / max(1, len(self._windows))
        scale = (HEIGHT - TOP - BOTTOM) / (highest * 1.1)
        ground = HEIGHT - BOTTOM
        parts = [_text(LEFT, 20, "Started in each interval, by template; the line is MaxSendSpeed × interval", size=15)]
        for number, window in enumerate(self._windows):
            left, top = LEFT + number * step, float(ground)
            for hue, (name, starts) in enumerate(self._by_template.items()):
                count = self._started(starts, number)
                if count:
                    top -= count * scale
                    colour = f"hsl({hue * 360 // len(self._by_template)},65%,{50 + hue % 3 * 10}%)"
                    title = f"<title>{escape(name)}: {count:,}</title>"
                    parts.append(
                        f'<rect x="{left:.1f}" y="{top:.1f}" width="{step * 0.9:.1f}" height="{count * scale:.1f}" '
                        f'fill="{colour}">{title}</rect>'
                    )
            level = ground - window.max_to_send * scale
            parts.append(_line(left, level, left + step * 0.9, level, "black"))
            if number % max(1, len(self._windows) // 8) == 0:
                parts.append(_text(left, ground + 18, f"{window.begins:%H:%M:%S}"))
        for killed_at in self._kills:
            for number, window in enumerate(self._windows):
                if window.begins.timestamp() <= killed_at < window.ends.timestamp():
                    share = (killed_at - window.begins.timestamp()) / (window.ends - window.begins).total_seconds()
                    x = LEFT + (number + share * 0.9) * step
                    parts += [_line(x, TOP, x, ground, "red"), _text(x + 3, TOP + 10, "a worker is killed", "red")]
        parts += [_text(5, ground, "0"), _text(5, ground - highest * scale + 4, f"{highest:,}")]
        body = "\n".join(parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
        )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="1.5"/>'


def _text(x: float, y: float, text: str, colour: str = "black", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}">{escape(text)}</text>'
