"""Semaphores: who holds places, who waits for one."""

from __future__ import annotations

from contextlib import suppress

from starlette.responses import Response

from matrixsched.errors import TaskNotFound
from matrixsched.ops import changes, semaphores
from matrixsched.ops.operator import Operator
from matrixsched.ops.render import Facts
from matrixsched.ops.web.pages.changing import Changes, Given, Happened, Proposal, check_seen, seen
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.rules.durations import duration_text
from matrixsched.rules.semaphore import Semaphore, Task

PAGE = 50
TASKS = 100


async def show_semaphores(visit: Visit) -> Response:
    after = visit.request.query_params.get("after", "")
    found = await semaphores.counted(visit.app, after=after, limit=PAGE)
    more = visit.to("semaphores", after=found[-1].semaphore.key) if len(found) == PAGE else None
    return visit.show(
        "semaphores.html", page="semaphores", rows=[one.facts for one in found], more=more, is_first=not after
    )


async def show_semaphore(visit: Visit) -> Response:
    key = visit.request.query_params.get("key", "")
    crowd = await semaphores.crowd(visit.app, key, holders=TASKS, waiting=TASKS)
    return visit.show(
        "semaphore.html",
        page="semaphores",
        semaphore=crowd.standing.semaphore,
        sections=crowd.sections,
        tasks_max=TASKS,
    )


async def propose_update(visit: Visit, given: Given) -> Proposal:
    before = await visit.app.semaphores.settings(given.text("key"))
    active, try_release = given.integer_or_none("active"), given.integer_or_none("try_release")
    after = Semaphore(
        key=before.key,
        active=before.active if active is None else active,
        try_release=before.try_release if try_release is None else try_release,
        hold_for=before.hold_for,
    )
    hold_for = "for good" if before.hold_for is None else f"for {duration_text(before.hold_for)}"
    says = [
        f"{after.active:,} tasks may be active (before: {before.active:,}), and the last {after.try_release:,} of them "
        f"may be asked to make room (before: {before.try_release:,}). Places are held {hold_for}."
    ]
    if after.active < before.active:
        says.append("Who holds a place keeps it until it is released: it may take a while until there are so few.")
    return Proposal(
        title=f"Change the semaphore {before.key}?",
        says=says,
        facts=semaphores.settings_facts(before),
        sends={
            "key": before.key,
            "active": str(after.active),
            "try_release": str(after.try_release),
            **seen(semaphores.settings_facts(before)),
        },
        button="Change it",
        back=visit.to("semaphore", key=before.key),
    )


async def update(visit: Visit, operator: Operator, given: Given) -> Happened:
    key = given.text("key")
    check_seen(given, semaphores.settings_facts(await visit.app.semaphores.settings(key)))
    standing = await changes.update_semaphore(
        operator, key, active=given.integer("active"), try_release=given.integer("try_release")
    )
    return Happened(
        title="Done", says=["The semaphore is changed."], facts=standing.facts, back=visit.to("semaphore", key=key)
    )


async def propose_release(visit: Visit, given: Given) -> Proposal:
    key, id = given.text("key"), given.text("task")
    (task,) = await semaphores.tasks(visit.app, key, [id])
    return Proposal(
        title="Release this task?",
        says=[
            f"It loses its place in {key}, or in the line, and is forgotten. Whoever works on it is not stopped: make "
            "sure that nobody does. It can be enqueued again."
        ],
        facts=semaphores.task_facts(task),
        sends={"key": key, "task": id, **seen(_shown(task))},
        button="Release the task",
        is_grave=True,
        back=visit.to("semaphore", key=key),
    )


async def release(visit: Visit, operator: Operator, given: Given) -> Happened:
    key, id = given.text("key"), given.text("task")
    with suppress(TaskNotFound):  # then there is nothing to lose
        (task,) = await semaphores.tasks(visit.app, key, [id])
        check_seen(given, _shown(task))
    released = await changes.release_tasks(operator, key, [id])
    said = f"The task {id} is released." if released else f"The task {id} was gone already."
    return Happened(
        title="Done" if released else "Nothing was done",
        says=[said],
        back=visit.to("semaphore", key=key),
        is_done=bool(released),
    )


def _shown(task: Task) -> Facts:
    """What tells the task that was shown from one that was enqueued, or got its place, since then."""
    return {"state": task.state.value, "enqueued_at": task.enqueued_at, "acquired_at": task.acquired_at}


SEMAPHORE_CHANGES: Changes = {
    "update_semaphore": (propose_update, update),
    "release_task": (propose_release, release),
}
