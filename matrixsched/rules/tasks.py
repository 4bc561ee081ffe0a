"""Tasks as callers name them: ids, priorities and holds, refused before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from matrixsched.errors import BadInput
from matrixsched.rules.arguments import each, pair
from matrixsched.rules.names import check_name
from matrixsched.rules.semaphore import check_priority

PAIRS = "a mapping of ids to priorities, or pairs of them"


def check_hold(hold: object) -> UUID | None:
    if hold is None or isinstance(hold, UUID):
        return hold
    raise BadInput(f"hold must be a UUID, not {type(hold).__name__}: pass event.hold as it is")


def read_ids(task_ids: object, of_one: str) -> list[str]:
    """Each once, in the order given; `of_one` is what to call for one alone."""
    if isinstance(task_ids, str):
        raise BadInput(f"task_ids is one text: pass a list of ids, or use {of_one}()")
    return list(dict.fromkeys(check_name("task id", id) for id in each("task_ids", task_ids, "a list of ids")))


def read_priorities(tasks: object) -> Iterator[tuple[str, float]]:
    """One after the other, as they are drawn: there may be more than fit into memory."""
    for given in each("tasks", tasks.items() if isinstance(tasks, Mapping) else tasks, PAIRS):
        id, priority = pair("tasks", given, PAIRS)
        yield check_name("task id", id), check_priority(priority)
