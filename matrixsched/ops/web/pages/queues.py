"""Queues: what waits in them, and the dead letters that were set aside."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

from starlette.responses import Response

from matrixsched.ops import changes, queues
from matrixsched.ops.operator import Operator
from matrixsched.ops.queues import COUNT_MAX, Named
from matrixsched.ops.render import Count
from matrixsched.ops.web.pages.changing import Changes, Given, Happened, Proposal
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.ops.web.problems import Refused

TASKS = 20
LETTERS = 50


async def show_queues(visit: Visit) -> Response:
    found = await queues.listed(visit.app, queues.declared(visit.app))
    return visit.show("queues.html", page="queues", standings=found)


async def named(visit: Visit, text: str) -> Named:
    if not text:
        raise Refused(HTTPStatus.BAD_REQUEST, "which queue? Its number is missing in the address")
    return await queues.named(visit.app, queues.declared(visit.app), text)


async def show_queue(visit: Visit) -> Response:
    queue = await named(visit, visit.asked("queue"))
    after = Given(visit.request.query_params).integer_or_none("after") or 0
    inside = await queues.inside(visit.app, queue, tasks=TASKS, dead=LETTERS, after=after, with_data=False)
    more = visit.to("queue", queue=queue.number, after=inside.dead[-1].id) if len(inside.dead) == LETTERS else None
    return visit.show(
        "queue.html",
        page="queues",
        queue=queue,
        inside=inside,
        sections=inside.sections,
        more=more,
        is_first=not after,
        tasks_max=TASKS,
    )


async def _found(visit: Visit, given: Given) -> queues.Standing:
    return await queues.standing(visit.app, await named(visit, given.text("queue")))


def _proposal(
    visit: Visit, standing: queues.Standing, title: str, says: str, button: str, *, task: str = "", grave: bool = False
) -> Proposal:
    # By when they died, not by their ids: an old task that dies after this was shown has a low one.
    which = {"task": task} if task else {"died_by": standing.now.isoformat()}
    sends = {"queue": str(standing.queue.number), **which}
    return Proposal(
        title=title,
        says=[says],
        facts=standing.facts,
        sends=sends,
        button=button,
        is_grave=grave,
        back=visit.to("queue", queue=standing.queue.number),
    )


async def propose_pause(visit: Visit, given: Given) -> Proposal:
    standing = await _found(visit, given)
    says = "No worker takes tasks of it any more, until it is resumed. Tasks can still be put; batches under way end."
    return _proposal(visit, standing, f"Pause {standing.queue}?", says, "Pause the queue")


async def propose_resume(visit: Visit, given: Given) -> Proposal:
    standing = await _found(visit, given)
    return _proposal(
        visit, standing, f"Resume {standing.queue}?", "Workers take tasks of it again.", "Resume the queue"
    )


async def propose_redrive(visit: Visit, given: Given) -> Proposal:
    standing, task = await _found(visit, given), given.text_or_none("task")
    count = Count(standing.stat.dead, COUNT_MAX)
    what = f"The dead letter {task} goes" if task else f"All dead letters that there are now ({count}) go"
    says = f"{what} back to the queue and can be taken at once, as if new. {COUNT_MAX:,} at a time at most."
    return _proposal(visit, standing, f"Redrive dead letters of {standing.queue}?", says, "Redrive", task=task or "")


async def propose_purge(visit: Visit, given: Given) -> Proposal:
    standing, task = await _found(visit, given), given.text_or_none("task")
    count = Count(standing.stat.dead, COUNT_MAX)
    what = f"The dead letter {task} is" if task else f"All dead letters that there are now ({count}) are"
    says = f"{what} deleted, for good. {COUNT_MAX:,} at a time at most."
    title = f"Purge dead letters of {standing.queue}?"
    return _proposal(visit, standing, title, says, "Delete for good", task=task or "", grave=True)


async def pause(visit: Visit, operator: Operator, given: Given) -> Happened:
    standing = await changes.pause_queue(operator, await named(visit, given.text("queue")))
    return _happened(visit, standing, "It is paused: nothing is taken of it any more.")


async def resume(visit: Visit, operator: Operator, given: Given) -> Happened:
    standing = await changes.resume_queue(operator, await named(visit, given.text("queue")))
    return _happened(visit, standing, "It goes on.")


async def redrive(visit: Visit, operator: Operator, given: Given) -> Happened:
    queue = await named(visit, given.text("queue"))
    ids = _ids(given)
    done = await changes.redrive_queue(operator, queue, ids, died_by=_died_by(given, ids))
    return _happened(visit, await queues.standing(visit.app, queue), f"{done:,} went back to the queue.", done > 0)


async def purge(visit: Visit, operator: Operator, given: Given) -> Happened:
    queue = await named(visit, given.text("queue"))
    ids = _ids(given)
    done = await changes.purge_queue_dead(operator, queue, ids, died_by=_died_by(given, ids))
    return _happened(visit, await queues.standing(visit.app, queue), f"{done:,} were deleted.", done > 0)


def _ids(given: Given) -> list[int] | None:
    task = given.integer_or_none("task")
    return None if task is None else [task]


def _died_by(given: Given, ids: list[int] | None) -> datetime | None:
    """Of all of them those that were dead when they were shown."""
    return given.moment("died_by") if ids is None else None


def _happened(visit: Visit, standing: queues.Standing, said: str, is_done: bool = True) -> Happened:
    return Happened(
        title="Done" if is_done else "Nothing was done",
        says=[said],
        facts=standing.facts,
        back=visit.to("queue", queue=standing.queue.number),
        is_done=is_done,
    )


QUEUE_CHANGES: Changes = {
    "pause_queue": (propose_pause, pause),
    "resume_queue": (propose_resume, resume),
    "redrive_queue": (propose_redrive, redrive),
    "purge_queue_dead": (propose_purge, purge),
}
