"""Messages of templates before their gates, and a planner of windows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from matrixsched.rules.lanes import Lane
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.rates import Rate, parse_rate
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.values import Planned
from support.scene import HANDLER, Scene

MINUTE = timedelta(minutes=1)


async def put(scene: Scene, name: str, **change: Any) -> None:
    await scene.run(scene.do.put_template(name, TemplateChange(**change)))


async def limit(scene: Scene, name: str, rate: str | Rate) -> None:
    await scene.run(scene.do.set_limit(name, parse_rate(rate) if isinstance(rate, str) else rate, pool=0))


async def fill(
    scene: Scene, template: str, count: int, *, zone: str | None = None, priority: int = 0, **options: Any
) -> str:
    """Messages of a template that are due, in processing; their lane."""
    lane = Lane(handler=HANDLER, priority=priority, template=template, zone=zone).name
    about = {"lane": lane, "template": template, "zone": zone, "priority": priority}
    number = len(await scene.table("scheduled_actions"))
    await scene.send([scene.new(f"{template} {number + n}", **(about | options)) for n in range(count)])
    hold = await scene.hold()
    await scene.move(hold, move_limit=count, claim_limit=0)
    await scene.release(hold)
    return lane


async def plan(scene: Scene) -> Planned:
    return await scene.run(scene.do.plan_window("host:1"))


async def change_settings(scene: Scene, **changes: Any) -> None:
    def change(settings: QuotaSettings) -> QuotaSettings:
        return replace(settings, **changes)

    await scene.run(scene.do.set_quota_settings(change))


async def grants(scene: Scene, begins_at: datetime | None = None) -> dict[tuple[str, int, bool], int]:
    rows = [row for row in await scene.table("quota_grants") if begins_at in (None, row["begins_at"])]
    return {(row["template"], row["priority"], row["inside"]): row["granted"] for row in rows}


async def send_message(scene: Scene, id: str, **options: Any) -> None:
    """A message of a template on the way to its gate."""
    lane = Lane(handler=HANDLER, template="promo").name
    await scene.schedule(id, shard=1, lane=lane, template="promo", **options)
