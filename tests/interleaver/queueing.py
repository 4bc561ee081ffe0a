"""Moves about typed queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interleaver.facts import plain
from interleaver.move import HOLD, QUEUE, SECOND, errors_in
from interleaver.stage import Side
from matrixsched.rules.queues import NewItem
from matrixsched.store.queues import Letter, Retry
from matrixsched.store.transition import Transition

# Queues.


def put(side: Side) -> Transition[Any]:
    item = NewItem(queue=QUEUE, data=f"of {side.name}".encode(), delay=SECOND)
    return side.do.put_tasks([item], side.guid(), tell=True)


def take(side: Side) -> Transition[Any]:
    return side.do.take_tasks(QUEUE, 9, side.guid(), visibility=HOLD)


def take_one(side: Side) -> Transition[Any]:
    return side.do.take_tasks(QUEUE, 1, side.guid(), visibility=HOLD)


def done(side: Side) -> Transition[Any]:
    return side.do.done_tasks([side.facts.taken_task().receipt])


def done_again(side: Side) -> Transition[Any]:
    """No answer came to the first try."""
    return side.do.done_tasks([side.facts.taken_task().receipt], again=True)


def done_late(side: Side) -> Transition[Any]:
    """With a receipt that is void."""
    return side.do.done_tasks([side.facts.lapsed_task().receipt])


def retry(side: Side) -> Transition[Any]:
    return side.do.retry_tasks([Retry(side.facts.taken_task().receipt, SECOND)], side.guid())


def extend_tasks(side: Side) -> Transition[Any]:
    return side.do.extend_tasks([side.facts.taken_task().receipt], visibility=HOLD)


def set_aside(side: Side) -> Transition[Any]:
    return side.do.set_aside_tasks([Letter(side.facts.taken_task().receipt, "no use")], side.guid())


def redrive(side: Side) -> Transition[Any]:
    return side.do.redrive(QUEUE, ids=None, limit=9, tell=False)


def purge(side: Side) -> Transition[Any]:
    return side.do.purge_tasks(QUEUE, ids=None, limit=9)


def purge_dead(side: Side) -> Transition[Any]:
    return side.do.purge_dead(QUEUE, ids=None, limit=9)


def hasten(side: Side) -> Transition[Any]:
    return side.do.retry_now(QUEUE, ids=None, limit=9, tell=False)


def pause_queue(side: Side) -> Transition[Any]:
    return side.do.pause_queue(QUEUE)


def how_many(answers: Sequence[Any]) -> Any:
    """Ids come from a sequence: which they are does not matter."""
    return len(answers[-1]) if isinstance(answers[-1], list) else plain(answers)


def tasks_handed(answers: Sequence[Any]) -> Any:
    return errors_in(answers) + sorted(
        f"{task.data.decode()} {task.attempts} {task.receipt.guid}"
        for answer in answers
        if isinstance(answer, list)
        for task in answer
    )
