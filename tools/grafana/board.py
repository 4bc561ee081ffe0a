"""The board for Grafana: `python tools/grafana/board.py` makes matrixsched.json of what panels.py says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from panels import ROWS, Panel, metric

TARGET = Path(__file__).with_name("matrixsched.json")
SCHEMA_VERSION = 39  # of Grafana 11; newer ones bring it up to date by themselves
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
ROW_HEIGHT = 1


# What can be chosen.


def variables() -> list[dict[str, Any]]:
    of_installation = 'matrixsched_build_info{installation="$installation"'
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        variable("installation", "matrixsched_build_info", one=True),
        variable("job", f"{of_installation}}}"),
        variable("instance", f'{of_installation}, job=~"$job"}}'),
        variable("handler", metric("attempts_total")),
        variable("template", metric("held_actions")),
        variable("queue", metric("queue_depth")),
        variable("semaphore", metric("semaphore_held")),
    ]


def variable(label: str, series: str, *, one: bool = False) -> dict[str, Any]:
    """The values of a label; all of them, unless one must be chosen."""
    query = f"label_values({series}, {label})"
    chosen = {"multi": False, "includeAll": False}
    if not one:
        # Where a label has no value at all, as templates where nobody sends campaigns, .* still lets everything pass.
        is_of_scrape = label in ("job", "instance")
        chosen = {"multi": True, "includeAll": True, "current": {"text": "All", "value": "$__all"}}
        chosen |= {} if is_of_scrape else {"allValue": ".*"}
    return {
        "name": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": label},
        "refresh": 2,  # when the time range changes: workers come and go
        "sort": 1,
        **chosen,
    }


# The file.


def board() -> dict[str, Any]:
    return {
        "title": "matrixsched",
        "uid": "matrixsched",
        "tags": ["matrixsched"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": list(placed()),
    }


def placed() -> Iterator[dict[str, Any]]:
    """Every panel at its place: from the left to the right, and then below."""
    ids, y = count(1), 0
    for title, panels in ROWS.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": ROW_HEIGHT}
        yield {"id": next(ids), "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        x, y = 0, y + ROW_HEIGHT
        height = 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            yield drawn(panel, next(ids), {"x": x, "y": y, "w": panel.width, "h": panel.height})
            x, height = x + panel.width, panel.height
        y += height


def drawn(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": looks(panel), "overrides": []},
        "options": options(panel),
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.shown)
        ],
    }


def looks(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [{"color": "orange", "value": panel.warn_at}] if panel.warn_at is not None else []
    steps += [{"color": "red", "value": panel.alarm_at}] if panel.alarm_at is not None else []
    found: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        stacking = "normal" if panel.stacked else "none"
        found["custom"] = {"fillOpacity": 10, "showPoints": "never", "stacking": {"mode": stacking, "group": "A"}}
    return found


def options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value"}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def main(target: Path) -> None:
    made = board()
    target.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{target.name}: {len(made['panels']) - len(ROWS)} panels in {len(ROWS)} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
