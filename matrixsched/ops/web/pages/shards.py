"""Shards: who holds their locks, what waits behind them; and taking a lock away from a holder that is gone."""

from __future__ import annotations

from starlette.responses import Response

from matrixsched.ops import changes, shards
from matrixsched.ops.operator import Operator
from matrixsched.ops.web.pages.changing import Changes, Given, Happened, Proposal
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.rules.explanation import SILENT_AFTER

COUNT_MAX = 1_000
"""Counting stops there: with 64 shards that is little to read however much waits."""


async def show_shards(visit: Visit) -> Response:
    reports = await visit.app.shards(count_max=COUNT_MAX)
    held = [report for report in reports if report.locked]
    return visit.show(
        "shards.html",
        page="shards",
        reports=reports,
        count_max=COUNT_MAX,
        held=len(held),
        silent=[report for report in held if report.heartbeat_age > SILENT_AFTER],
        waiting=sum(1 for report in reports if report.incoming or report.oldest_due_at is not None),
        silent_after=SILENT_AFTER,
        at=reports[0].heartbeat_at + reports[0].heartbeat_age,
    )


async def propose_release(visit: Visit, given: Given) -> Proposal:
    shard = given.integer("shard")
    found = await shards.release(visit.app, shard, None, confirmed=False)
    back = visit.to("shards")
    if found.verdict == "free":
        return Proposal(title=f"Shard {shard} is free", says=["Nobody holds it: there is nothing to do."], back=back)
    report = found.report
    return Proposal(
        title=f"Release shard {shard}?",
        says=[
            f"The lock is taken from {report.locked_by}, and the next worker that asks takes the shard.",
            "A holder that is alive notices and writes nothing more; the attempts it has begun come to their end. "
            "It is released only if it is still held as it is shown here.",
        ],
        facts=found.facts,
        sends={"shard": str(shard), "guid": str(report.lock_guid)},
        button="Release the shard",
        is_grave=report.heartbeat_age <= SILENT_AFTER,
        back=back,
    )


async def release(visit: Visit, operator: Operator, given: Given) -> Happened:
    shard, guid = given.integer("shard"), given.guid("guid")
    done = await changes.release_shard(operator, shard, guid)
    match done.verdict:
        case "released":
            said, is_done = f"Shard {shard} is free: the next worker that asks takes it.", True
        case "free":
            said, is_done = f"Shard {shard} was free already: nothing was done.", False
        case _:
            said, is_done = f"Nothing was done: shard {shard} has changed hands meanwhile.", False
    return Happened(
        title=f"Shard {shard}: {done.verdict}", says=[said], facts=done.facts, back=visit.to("shards"), is_done=is_done
    )


SHARD_CHANGES: Changes = {"release_shard": (propose_release, release)}
