"""A grant is named by its window, template, priority and side: what is spent of one is spent of no other."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import product

import pytest
from support.gates import gated, look, look_all, put_template, set_limit
from support.scene import Scene

from matrixsched.rules.gates import Gate

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
ZONE = "Europe/Berlin"
TEMPLATES, PRIORITIES, SIDES = ("news", "promo"), (0, 1), (False, True)


@dataclass(frozen=True, slots=True)
class Grant:
    template: str
    priority: int
    inside: bool
    begins_at: datetime
    granted: int
    used: int = 0


def grants_of_two_windows(now: datetime) -> list[Grant]:
    """Of each kind one in the present window and one in that before; no two of a window are of one size."""
    kinds = list(product(TEMPLATES, PRIORITIES, SIDES))
    return [
        Grant(*kind, begins_at, size + more)
        for begins_at, more in ((now - MINUTE, 20), (now, 1))
        for size, kind in enumerate(kinds)
    ]


async def plan(scene: Scene, grants: list[Grant]) -> None:
    for name in TEMPLATES:
        await put_template(scene, name)
    for begins_at in {grant.begins_at for grant in grants}:
        await scene.sql(
            "insert into matrixsched.quota_windows (begins_at, ends_at, planned_at, planned_by, templates) "
            "values (:begins_at, :ends_at, :begins_at, 'host:1', 2)",
            begins_at=begins_at,
            ends_at=begins_at + MINUTE,
        )
    for grant in grants:
        await scene.sql(
            "insert into matrixsched.quota_grants (begins_at, template, priority, inside, zones, waiting, granted) "
            f"values (:begins_at, :template, :priority, {str(grant.inside).lower()}, :zones, 0, :granted)",
            begins_at=grant.begins_at,
            template=grant.template,
            priority=grant.priority,
            zones=json.dumps([ZONE] if grant.inside else []),
            granted=grant.granted,
        )


async def stored(scene: Scene) -> set[Grant]:
    names = ("template", "priority", "inside", "begins_at", "granted", "used")
    return {Grant(**{name: row[name] for name in names}) for row in await scene.table("quota_grants")}


@pytest.mark.parametrize(("template", "priority", "inside"), list(product(TEMPLATES, PRIORITIES, SIDES)))
async def test_what_is_spent_of_a_grant_is_spent_of_no_other(scene: Scene, template: str, priority: int, inside: bool):
    grants = grants_of_two_windows(scene.now)
    await plan(scene, grants)
    (spent,) = (
        one
        for one in grants
        if (one.template, one.priority, one.inside) == (template, priority, inside) and one.begins_at == scene.now
    )
    sending = gated(template=template, priority=priority, zone=ZONE if inside else None)
    await scene.send([scene.new(f"{number}", **sending) for number in range(30)])
    assert len(await look_all(scene)) == spent.granted
    assert await stored(scene) == {*grants} - {spent} | {replace(spent, used=spent.granted)}


async def test_templates_that_send_at_once_spend_each_its_own(scene: Scene):
    await plan(scene, [Grant("news", 0, False, scene.now, 2), Grant("promo", 0, False, scene.now, 3)])
    for name in TEMPLATES:
        await scene.send([scene.new(f"{name} {number}", **gated(template=name)) for number in range(5)])
    assert len(await look_all(scene)) == 5
    assert {(one.template, one.used) for one in await stored(scene)} == {("news", 2), ("promo", 3)}


async def test_what_is_granted_for_a_window_that_comes_is_not_spent_before(scene: Scene):
    coming = Grant("promo", 0, False, scene.now + MINUTE, 3)
    await plan(scene, [Grant("promo", 0, False, scene.now, 1), coming])
    await scene.send([scene.new(f"{number}", **gated(template="promo")) for number in range(5)])
    assert len(await look_all(scene)) == 1
    assert coming in await stored(scene)


async def test_what_is_or_was_granted_to_others_lets_nobody_pass(scene: Scene):
    over = Grant("promo", 0, False, scene.now - MINUTE, 5)
    await plan(scene, [over, Grant("news", 0, False, scene.now, 5), Grant("promo", 1, False, scene.now, 5)])
    await scene.send([scene.new("a", **gated(template="promo", priority=0))])
    seen = await look(scene)
    assert (seen.ids, seen.gates) == ([], {Gate.QUOTA})


# Buckets of keys.


async def test_a_key_has_a_bucket_only_where_all_keys_have_a_limit(scene: Scene):
    await set_limit(scene, "global", "1000/s")
    await scene.send([scene.new("a", **gated(key="mx"))])
    scene.clock.advance(MINUTE)
    assert len(await look_all(scene)) == 1
    assert [row["name"] for row in await scene.table("limits")] == ["global"]


async def test_only_keys_get_buckets_of_their_own(scene: Scene):
    await set_limit(scene, "key:*", "1000/s")
    await plan(scene, [Grant("promo", 0, False, scene.now, 5)])
    await scene.send([scene.new("a", **gated(key="mx", template="promo"))])
    await look_all(scene)
    assert sorted(row["name"] for row in await scene.table("limits")) == ["key:*", "key:mx"]
