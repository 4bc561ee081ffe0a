"""Calls that do not fit what is there."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from matrixsched.errors.roots import MatrixSchedError


class ActionNotFound(MatrixSchedError, LookupError):
    """No action has that id in this installation."""

    remedy = "Check the id and the installation; finished actions are pruned after a time."

    def __init__(self, action_id: str) -> None:
        super().__init__(f"there is no action {action_id!r}")
        self.action_id = action_id


class ActionExists(MatrixSchedError):
    """schedule(exists="error") found an action of that id."""

    remedy = 'Use exists="replace" to overwrite it or exists="keep" to leave it.'

    def __init__(self, action_id: str, guid: UUID) -> None:
        super().__init__(f"action {action_id!r} exists already (guid {guid})")
        self.action_id, self.guid = action_id, guid


class ActionFinished(MatrixSchedError):
    """A finished action has no next run that could be moved."""

    remedy = "Use run_now() to run it once more, or schedule() to begin anew."

    def __init__(self, action_id: str, state: str) -> None:
        super().__init__(f"action {action_id!r} is finished ({state})")
        self.action_id, self.state = action_id, state


class ActionNotAsSeen(MatrixSchedError):
    """An attempt at the action began or ended since it was read: to run it now would run it once more."""

    remedy = "Read the action again and decide anew."

    def __init__(self, action_id: str) -> None:
        super().__init__(f"an attempt at action {action_id!r} began or ended since it was read")
        self.action_id = action_id


class LimitNotFound(MatrixSchedError, LookupError):
    """No limit of that name is set in this installation."""

    remedy = "`matrixsched limits list` shows those that are."

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no limit {name!r:.80}")
        self.name = name


class TemplateInUse(MatrixSchedError):
    """A template whose messages still wait cannot be removed: nobody would know any more when to send them."""

    remedy = "Let them go out, or cancel them with `await app.templates.stop(name)`; then remove it."

    def __init__(self, name: str) -> None:
        super().__init__(f"the template {name!r:.80} has messages that are not finished")
        self.name = name


class GuidMismatch(MatrixSchedError):
    """Somebody changed the action since its guid was read."""

    remedy = "Read the action again and decide anew."

    def __init__(self, action_id: str, expected: UUID, found: UUID | None) -> None:
        super().__init__(f"action {action_id!r} was expected at guid {expected} but is at {found or 'none'}")
        self.action_id, self.expected, self.found = action_id, expected, found


class SemaphoreNotFound(MatrixSchedError, LookupError):
    """No semaphore of that key is in this installation."""

    remedy = "Create it with `await app.semaphores.get_or_create(key)`, or check the key."

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no semaphore {key!r:.80}")
        self.key = key


class TaskNotFound(MatrixSchedError, LookupError):
    """Tasks that neither hold a place of the semaphore nor wait for one; nothing was changed."""

    remedy = "It was released already, or never enqueued: check its id."

    def __init__(self, key: str, task_ids: Sequence[str], *, of_hold: bool = False) -> None:
        named = ", ".join(f"{id!r:.80}" for id in task_ids[:3]) + (" …" if len(task_ids) > 3 else "")
        super().__init__(f"the semaphore {key!r:.80} has no task {named}{' of that hold' if of_hold else ''}")
        self.key, self.task_ids = key, tuple(task_ids)


class TaskNotReleased(TaskNotFound):
    """Tasks to be released of which some are not there, or are so for another time; nothing was released."""

    remedy = (
        "What is not there was released already, or never enqueued: pass missing_ok=True where that does not matter."
    )
