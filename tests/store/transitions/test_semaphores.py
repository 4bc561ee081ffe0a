"""Semaphores: who enqueues and releases, who balances, and what tells of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.scene import Scene

from matrixsched.rules.semaphore import Semaphore, TaskState
from matrixsched.store.semaphores import Balanced, Enqueued, NewTask, TaskName, ToBalance
from matrixsched.store.transition import Transition

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
POOL = "pool"


async def make(scene: Scene, active: int = 2, try_release: int = 1, key: str = POOL, **options: Any) -> Semaphore:
    return await scene.run(
        scene.do.make_semaphore(Semaphore(key=key, active=active, try_release=try_release, **options))
    )


async def enqueue(scene: Scene, key: str = POOL, *, request: Any = None, **priorities: float) -> Enqueued | None:
    scene.clock.advance(timedelta(microseconds=1))  # who comes later is behind
    tasks = [NewTask(id, priority, scene.guid()) for id, priority in priorities.items()]
    asked = scene.do.enqueue_tasks(key, tasks, request or scene.guid(), change_guid=scene.guid(), tell=False)
    return await scene.run(asked)


def releasing(scene: Scene, *ids: str, **options: Any) -> Transition[list[str] | None]:
    tasks = [TaskName(id) for id in ids]
    return scene.do.release_tasks(POOL, tasks, scene.guid(), change_guid=scene.guid(), tell=False, **options)


async def release(scene: Scene, *ids: str, **options: Any) -> list[str] | None:
    found = await scene.run(releasing(scene, *ids, **options))
    return None if found is None else sorted(found)


async def balance(scene: Scene, key: str = POOL) -> Balanced:
    balanced = await scene.run(scene.do.balance(key, scene.guid, shards=8))
    assert balanced is not None
    return balanced


async def states(scene: Scene) -> dict[str, str]:
    return {row["task_id"]: row["state"] for row in await scene.table("semaphore_tasks")}


async def changed(scene: Scene) -> list[str]:
    found = await scene.run(scene.do.changed_semaphores(told_of=[POOL]))
    return sorted({*found.changed, *found.late})


async def events(scene: Scene) -> dict[str, str]:
    """The live actions that tell of tasks, by handler and task."""
    rows = [row for row in await scene.table("scheduled_actions") if row["state"] == "live"]
    return {f"{row['handler']} {json.loads(row['payload'])['task_id']}": str(row["action_guid"]) for row in rows}


async def test_a_semaphore_is_made_once_and_then_as_it_is(scene: Scene):
    assert await make(scene, 5, 3) == Semaphore(key=POOL, active=5, try_release=3)
    assert await make(scene, 7, 7) == Semaphore(key=POOL, active=5, try_release=3)
    assert await scene.run(scene.do.find_semaphore("other")) is None
    assert await changed(scene) == []


async def test_a_semaphore_is_changed_and_then_balanced(scene: Scene):
    await make(scene, 5, 3)
    wanted = Semaphore(key=POOL, active=1, try_release=0, hold_for=3 * SECOND)
    assert await scene.run(scene.do.update_semaphore(POOL, lambda _: wanted, scene.guid())) == wanted
    assert await scene.run(scene.do.find_semaphore(POOL)) == wanted
    assert await changed(scene) == [POOL]
    assert await scene.run(scene.do.update_semaphore("other", lambda _: wanted, scene.guid())) is None
    assert await changed(scene) == [POOL]


async def test_semaphores_are_listed_by_key(scene: Scene):
    for key in ("b", "a", "c"):
        await make(scene, key=key)
    assert [one.key for one in await scene.run(scene.do.semaphores(after="", limit=2))] == ["a", "b"]
    assert [one.key for one in await scene.run(scene.do.semaphores(after="b", limit=2))] == ["c"]


async def test_nothing_is_enqueued_where_there_is_no_semaphore(scene: Scene):
    assert await enqueue(scene, a=1) is None
    assert await scene.table("semaphore_tasks") == []
    assert await scene.table("requests") == []


async def test_enqueued_again_a_task_has_another_priority_and_its_old_place_in_time(scene: Scene):
    await make(scene)
    assert await enqueue(scene, a=1, b=1) == Enqueued(2, 0)
    assert await enqueue(scene, a=1, b=5, c=1) == Enqueued(1, 1)
    waiting = await scene.run(scene.do.waiting_tasks(POOL, limit=10))
    assert [(task.id, task.priority) for task in waiting] == [("b", 5.0), ("a", 1.0), ("c", 1.0)]
    assert waiting[0].enqueued_at == waiting[1].enqueued_at


async def test_a_request_is_carried_out_once(scene: Scene):
    await make(scene)
    request = scene.guid()
    assert await enqueue(scene, request=request, a=1) == Enqueued(1, 0)
    assert await release(scene, "a") == ["a"]
    assert await enqueue(scene, request=request, a=1) == Enqueued(0, 0)
    assert await states(scene) == {}
    await enqueue(scene, a=1)
    asked = releasing(scene, "a")
    assert await scene.run(asked) == ["a"]
    await enqueue(scene, a=1)
    assert await scene.run(asked) is None
    assert await states(scene) == {"a": "waiting"}


async def test_sent_again_an_enqueueing_tells_what_it_created(scene: Scene):
    await make(scene)
    await enqueue(scene, a=1)
    tasks = [NewTask(id, 2, scene.guid()) for id in "abc"]
    asked = scene.do.enqueue_tasks(POOL, tasks, scene.guid(), change_guid=scene.guid(), tell=False)
    assert await scene.run(asked) == Enqueued(2, 1)
    assert await scene.run(asked) == Enqueued(2, 0)
    await release(scene, "b")
    assert await scene.run(asked) == Enqueued(1, 0)


@pytest.mark.parametrize(("missing_ok", "goes"), [(False, False), (True, True)])
async def test_sent_again_a_release_tells_whether_it_was_carried_out(scene: Scene, missing_ok: bool, goes: bool):
    await make(scene)
    await enqueue(scene, a=1)
    asked = releasing(scene, "a", "nobody", missing_ok=missing_ok)
    assert await scene.run(asked) == ["a"]
    await enqueue(scene, nobody=1)
    assert await scene.run(asked) == (None if goes else [])
    assert ("a" in await states(scene)) is not goes


async def test_sent_again_a_step_back_tells_whether_it_was_carried_out(scene: Scene):
    def stepping_back() -> Transition[bool | None]:
        request, guid, change = scene.guid(), scene.guid(), scene.guid()
        return scene.do.step_back(
            POOL, TaskName("a"), request, priority=None, guid=guid, change_guid=change, tell=False
        )

    await make(scene)
    await enqueue(scene, a=1)
    early = stepping_back()
    assert await scene.run(early) is False
    await balance(scene)
    assert await scene.run(early) is False
    asked = stepping_back()
    assert await scene.run(asked) is True
    await balance(scene)
    assert await scene.run(asked) is None
    assert await states(scene) == {"a": "acquired"}


async def test_tasks_are_released_all_or_none(scene: Scene):
    await make(scene)
    await enqueue(scene, a=1, b=1)
    await balance(scene)
    assert await release(scene, "a", "nobody") == ["a"]
    assert await states(scene) == {"a": "acquired", "b": "acquired"}
    assert await changed(scene) == []
    assert await release(scene, "a", "nobody", missing_ok=True) == ["a"]
    assert await states(scene) == {"b": "acquired"}
    assert await changed(scene) == [POOL]


async def test_what_is_said_of_an_earlier_time_of_a_task_is_void(scene: Scene):
    await make(scene)
    await enqueue(scene, a=1)
    (before,) = await scene.run(scene.do.waiting_tasks(POOL, limit=1))
    await release(scene, "a")
    await enqueue(scene, a=1)
    await balance(scene)
    name = [TaskName("a", before.guid)]
    asked = scene.do.release_tasks(POOL, name, scene.guid(), change_guid=scene.guid(), tell=False)
    assert await scene.run(asked) == []
    assert await scene.run(scene.do.renew_tasks(POOL, name)) == []
    assert await states(scene) == {"a": "acquired"}


# Balancing.


async def test_free_places_go_to_the_most_important(scene: Scene):
    await make(scene, 2)
    await enqueue(scene, a=1, b=3)
    await enqueue(scene, c=3, d=2)
    balanced = await balance(scene)
    assert (balanced.acquired, balanced.asked, balanced.is_complete) == (("b", "c"), (), True)
    assert await states(scene) == {"a": "waiting", "b": "acquired", "c": "acquired", "d": "waiting"}
    assert set(await events(scene)) == {"acquired:pool b", "acquired:pool c"}
    assert await changed(scene) == []


async def test_a_semaphore_at_rest_stays_as_it_is(scene: Scene):
    await make(scene, 2)
    await enqueue(scene, a=1, b=3, c=2)
    await balance(scene)
    before = [await scene.table(name) for name in ("semaphore_tasks", "scheduled_actions", "incoming_queue")]
    scene.clock.advance(SECOND)
    assert await balance(scene) == Balanced(acquired=(), asked=(), kept=(), lapsed=(), is_complete=True)
    assert before == [await scene.table(name) for name in ("semaphore_tasks", "scheduled_actions", "incoming_queue")]


async def test_the_last_are_asked_for_more_important_ones_and_keep_their_places_until_they_go(scene: Scene):
    await make(scene, 2, 1)
    await enqueue(scene, a=1, b=2)
    await balance(scene)
    await enqueue(scene, urgent=9, more=8)
    assert (await balance(scene)).asked == ("a",)
    assert await states(scene) == {"a": "asked", "b": "acquired", "urgent": "waiting", "more": "waiting"}
    assert "try_release:pool a" in await events(scene)
    await release(scene, "a")
    assert (await balance(scene)).acquired == ("urgent",)


async def test_who_was_asked_and_is_not_to_go_after_all_is_so_no_longer(scene: Scene):
    await make(scene, 1, 1)
    await enqueue(scene, a=1)
    await balance(scene)
    await enqueue(scene, urgent=9)
    await balance(scene)
    await enqueue(scene, a=10)
    assert (await balance(scene)).kept == ("a",)
    (task,) = await scene.run(scene.do.held_tasks(POOL, limit=10))
    assert (task.state, task.asked_at) == (TaskState.ACQUIRED, None)


async def test_fewer_places_ask_the_last_and_drop_nobody(scene: Scene):
    await make(scene, 4, 4)
    await enqueue(scene, a=1, b=2, c=3, d=4)
    await balance(scene)
    await scene.run(scene.do.update_semaphore(POOL, lambda one: replace(one, active=1, try_release=0), scene.guid()))
    assert (await balance(scene)).asked == ("a", "b", "c")
    await enqueue(scene, urgent=9)
    await release(scene, "a", "b", "c")
    assert (await balance(scene)).acquired == ()
    await release(scene, "d")
    assert (await balance(scene)).acquired == ("urgent",)


async def test_a_place_that_is_not_renewed_is_lost(scene: Scene):
    await make(scene, 1, 0, hold_for=10 * SECOND)
    await enqueue(scene, a=1)
    await enqueue(scene, b=1)
    await balance(scene)
    scene.clock.advance(9 * SECOND)
    assert await scene.run(scene.do.renew_tasks(POOL, [TaskName("a"), TaskName("b")])) == ["a"]
    scene.clock.advance(9 * SECOND)
    assert await changed(scene) == []
    assert (await balance(scene)).lapsed == ()
    scene.clock.advance(SECOND)
    assert await changed(scene) == [POOL]
    balanced = await balance(scene)
    assert (balanced.lapsed, balanced.acquired) == (("a",), ("b",))
    assert await changed(scene) == []
    (waits,) = await scene.run(scene.do.waiting_tasks(POOL, limit=9))
    assert (waits.id, waits.enqueued_at) == ("a", scene.now)  # behind its like, but not gone


async def test_who_lost_a_place_and_is_the_most_important_has_it_anew(scene: Scene):
    await make(scene, 1, 0, hold_for=10 * SECOND)
    await enqueue(scene, a=2, b=1)
    await balance(scene)
    (before,) = await scene.run(scene.do.held_tasks(POOL, limit=9))
    scene.clock.advance(10 * SECOND)
    balanced = await balance(scene)
    assert (balanced.lapsed, balanced.acquired) == (("a",), ("a",))
    (after,) = await scene.run(scene.do.held_tasks(POOL, limit=9))
    assert after.guid != before.guid  # and so it is told again


async def test_places_that_are_no_longer_to_be_renewed_are_kept(scene: Scene):
    await make(scene, 1, 0, hold_for=10 * SECOND)
    await enqueue(scene, a=2, b=1)
    await balance(scene)
    await scene.run(scene.do.update_semaphore(POOL, lambda one: replace(one, hold_for=None), scene.guid()))
    scene.clock.advance(60 * SECOND)
    balanced = await balance(scene)
    assert (balanced.lapsed, balanced.acquired, balanced.is_complete) == ((), (), True)
    assert await changed(scene) == []
    await scene.run(scene.do.update_semaphore(POOL, lambda one: replace(one, hold_for=SECOND), scene.guid()))
    assert (await balance(scene)).lapsed == ()


async def test_places_that_had_no_end_before_are_nothing_to_balance_again_for(scene: Scene):
    async def hold_for(span: timedelta | None) -> Balanced:
        await scene.run(scene.do.update_semaphore(POOL, lambda one: replace(one, hold_for=span), scene.guid()))
        return await balance(scene)

    await make(scene, 1, 0, "other", hold_for=10 * SECOND)
    await enqueue(scene, "other", lasting=1)  # under the same name, but with an end
    await balance(scene, "other")
    await make(scene, 2, 0)
    await enqueue(scene, lasting=1)
    await balance(scene)
    await enqueue(scene, ending=1)
    await hold_for(10 * SECOND)
    assert (await hold_for(None)).is_complete
    assert await changed(scene) == []


async def test_changed_semaphores_are_looked_up_behind_a_key(scene: Scene):
    for key in "abc":
        await scene.run(scene.do.make_semaphore(Semaphore(key=key)))
        await scene.run(scene.do.update_semaphore(key, lambda one: one, scene.guid()))
    assert await scene.run(scene.do.changed_semaphores(after="a")) == ToBalance(["b", "c"], [])
    assert await scene.run(scene.do.changed_semaphores(after="c")) == ToBalance([], [])


async def test_late_places_of_others_hide_none(scene: Scene):
    await make(scene, 2000, 0, "others", hold_for=SECOND)
    tasks = [NewTask(f"{number:04}", 1, scene.guid()) for number in range(1500)]
    await scene.run(scene.do.enqueue_tasks("others", tasks, scene.guid(), change_guid=scene.guid(), tell=False))
    await scene.run(scene.do.balance("others", scene.guid, shards=4))
    scene.clock.advance(SECOND)
    await make(scene, 1, 0, hold_for=SECOND)
    await enqueue(scene, a=1)
    await balance(scene)
    assert await scene.run(scene.do.changed_semaphores(told_of=[POOL])) == ToBalance([], [])
    scene.clock.advance(SECOND)
    keys = [*(f"{number}" for number in range(2500)), POOL, "others"]
    assert await scene.run(scene.do.changed_semaphores(told_of=keys)) == ToBalance([], [POOL, "others"])
    assert await scene.run(scene.do.changed_semaphores(told_of=[])) == ToBalance([], [])


async def test_places_are_held_for_good_unless_told_otherwise(scene: Scene):
    await make(scene, 1, 0)
    await enqueue(scene, a=2)
    await balance(scene)
    assert await scene.run(scene.do.renew_tasks(POOL, [TaskName("a")])) == ["a"]
    scene.clock.advance(timedelta(days=1000))
    assert (await balance(scene)).lapsed == ()


async def test_a_later_event_of_a_task_takes_the_place_of_an_earlier_one(scene: Scene):
    await make(scene, 1, 0)
    await enqueue(scene, a=1)
    await balance(scene)
    first = await events(scene)
    await release(scene, "a")
    await balance(scene)
    await enqueue(scene, a=1)
    await balance(scene)
    second = await events(scene)
    assert first.keys() == second.keys() == {"acquired:pool a"}
    assert first != second


async def test_there_is_nothing_to_balance_where_there_is_no_semaphore(scene: Scene):
    assert await scene.run(scene.do.balance("nothing", scene.guid, shards=8)) is None


# Looking.


async def test_a_task_is_found_with_its_position(scene: Scene):
    await make(scene, 1)
    await enqueue(scene, a=1, b=3)
    await enqueue(scene, c=3, d=2)
    await balance(scene)

    async def position(id: str, count_max: int = 100) -> int | None:
        return await scene.run(scene.do.task_position(POOL, id, count_max=count_max))

    assert [await position(id) for id in "abcde"] == [2, None, 0, 1, None]
    assert await position("a", 1) == 1
    found = await scene.run(scene.do.find_task(POOL, "b"))
    assert found is not None
    assert (found.state, found.priority) == (TaskState.ACQUIRED, 3.0)
    assert await scene.run(scene.do.find_task(POOL, "e")) is None


async def test_tasks_are_counted(scene: Scene):
    await make(scene, 1, 1)
    await enqueue(scene, a=1)
    await balance(scene)
    await enqueue(scene, b=2)
    since = scene.now
    await enqueue(scene, c=0)
    await balance(scene)
    counts = await scene.run(scene.do.count_tasks(POOL, count_max=100))
    assert (counts.held, counts.asked, counts.waiting, counts.oldest_at) == (1, 1, 2, since)
    assert (await scene.run(scene.do.count_tasks(POOL, count_max=1))).waiting == 1


@pytest.mark.parametrize(
    "what",
    [
        lambda scene: enqueue(scene, a=float("nan")),
        lambda scene: enqueue(scene, a=float("inf")),
        lambda scene: enqueue(scene, a=float("-inf")),
    ],
)
async def test_the_database_takes_no_priority_that_is_no_number(scene: Scene, what: Callable[[Scene], Any]):
    await make(scene)
    with pytest.raises(Exception, match=r"priority|constraint|malformed|JSON"):
        await what(scene)
    assert await scene.table("semaphore_tasks") == []
