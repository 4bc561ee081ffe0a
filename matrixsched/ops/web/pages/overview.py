"""The overview: whether all is well, and if not, where to look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from matrixsched.ops.render import Facts
from matrixsched.ops.verdict import judge
from matrixsched.ops.web.pages.charts import attempts_chart, due_chart, late_chart
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.gates import Gate

GATES_IN_WORDS: Final[Mapping[Gate | None, tuple[str, str]]] = {
    Gate.LIMIT: ("a limit has no slot left at this moment", "limits"),
    Gate.SLOWED: ("a limit was told to slow down", "limits"),
    Gate.QUOTA: ("the share of the template in this window is used up", "templates"),
    Gate.UNPLANNED: ("this window of the quota is not planned yet", "templates"),
    Gate.PAUSED: ("the template is paused", "templates"),
    Gate.NO_TEMPLATE: ("the template does not exist", "templates"),
    Gate.BUSY: ("a worker is about to take them", "shards"),
    None: ("it is their turn: a worker takes them", "shards"),
}


async def show_overview(visit: Visit) -> Response:
    seen = await visit.desk.overview()
    return visit.show(
        "overview.html",
        page="",
        seen=seen,
        verdict=judge(seen),
        charts=[attempts_chart(seen.minutes), late_chart(seen.minutes), due_chart(seen.minutes)],
        minutes=list(reversed(seen.minutes)),
        held=held_rows(seen.gates),
        held_total=sum(count for (gate, _), count in seen.gates.held.items() if gate is not None),
    )


def held_rows(gates: GateReport) -> list[Facts]:
    """What holds how many, most first."""
    rows: list[Facts] = []
    for (gate, template), count in sorted(gates.held.items(), key=lambda item: -item[1]):
        text, place = GATES_IN_WORDS[gate]
        rows.append({"gate": gate or "nothing", "text": text, "place": place, "template": template, "count": count})
    return rows
