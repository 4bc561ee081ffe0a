"""Actions that are there when a workload begins: written directly, the library would take a minute for a million."""

from __future__ import annotations

from datetime import timedelta

from benchmarks.measuring import Run
from benchmarks.statements import STAGED_ACTIONS, STAGED_ROWS

AGO = timedelta(hours=-1)
LATER = timedelta(days=1)


def stage(
    run: Run,
    count: int,
    prefix: str,
    *,
    ahead: timedelta,
    lane: str = "''",
    template: str = "null",
    zone: str = "null",
) -> None:
    """Actions 0 … count - 1 in the processing queue, as if they had been scheduled and moved long ago.

    Lane, template and zone are SQL and may speak of the number `n`.
    """
    for texts in (STAGED_ACTIONS, STAGED_ROWS):
        run.place.ask(
            texts[run.place.dialect].format(
                count=count,
                shards=run.shards,
                prefix=prefix,
                ahead_s=round(ahead.total_seconds()),
                lane=lane,
                template=template,
                zone=zone,
            )
        )
