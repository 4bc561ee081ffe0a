"""What a caller is told of its call, also if an answer was lost on the way and the call was sent again.

What an earlier try wrote counts as written, whatever others have made of the action since: it is told as it would have
been in time. A call is refused, or said to have changed nothing, only if none of its tries did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from matrixsched.calls import Exists, Scheduled, ScheduledMany
from matrixsched.errors import ActionExists, ActionFinished, ActionNotAsSeen, ActionNotFound, GuidMismatch
from matrixsched.rules.action import Action
from matrixsched.store.store import Store
from matrixsched.store.transition import Conversation, Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import NewAction, Written

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """An action as it stands; the call did not write it."""

    action: Action
    is_repeated: bool
    """The same request was carried out before, by a call of the same name."""


Answer = Written | Found | None
"""To one of several calls in a statement; None: it found the action, which was pruned before it could be read."""


def as_scheduled(new: NewAction, answer: Answer, exists: Exists) -> Scheduled:
    match answer:
        case Written():
            return as_written(answer)
        case Found(action, is_repeated):
            if exists == "error" and not is_repeated:
                raise ActionExists(new.id, action.meta.guid)
            return as_found(action)
        case None:
            raise ActionNotFound(new.id)


def as_scheduled_many(answers: Sequence[Answer]) -> ScheduledMany:
    """What was found counts as kept also where it is gone since: the calls beside it were carried out with it."""
    changed = [answer for answer in answers if isinstance(answer, Written)]
    created = sum(one.created for one in changed)
    return ScheduledMany(len(answers), created, len(changed) - created, len(answers) - len(changed))


def as_written(one: Written) -> Scheduled:
    return Scheduled(one.id, one.guid, one.created, True, one.running)


def as_found(found: Action) -> Scheduled:
    return Scheduled(found.id, found.meta.guid, created=False, changed=False, running=found.status.running)


def written(
    do: Transitions,
    batch: Sequence[NewAction],
    own_guid: UUID,
    *,
    replaces: bool,
    only_if_new: bool = False,
    lock_timeout: timedelta | None,
    tell: bool,
) -> Conversation[list[Answer]]:
    """Write a batch; for what was not written, what stands there instead."""
    ordered = sorted(batch, key=lambda new: (new.shard, new.id.encode()))
    rows = yield from do.schedule(
        ordered, own_guid, replace=replaces, only_if_new=only_if_new, lock_timeout=lock_timeout, tell=tell
    ).begin()
    answers: dict[str, Written | Found] = {one.id: one for one in rows}
    if left := [new for new in batch if new.id not in answers]:
        answers |= yield from _unwritten(do, left, own_guid, replaces=replaces)
    if only_if_new:
        _refuse_unless_new(batch, answers)
    return [answers.get(new.id) for new in batch]


def _unwritten(
    do: Transitions, batch: Sequence[NewAction], own_guid: UUID, *, replaces: bool
) -> Conversation[dict[str, Written | Found]]:
    """What became of actions that a statement did not write, by their ids."""
    found = {action.id: action for action in (yield from do.find([(new.shard, new.id) for new in batch]).begin())}
    # What replaces is written with its request; of the others the guids tell that they were (`noted_guids`).
    proofs = {new.id: own_guid if replaces and new.request_guid is None else new.guid for new in batch}
    named = {new.request_guid for new in batch if new.request_guid is not None}
    carried_out = yield from do.carried_out(sorted({*proofs.values(), *named})).begin()
    answers: dict[str, Written | Found] = {}
    for new in batch:
        there = found.get(new.id)
        if proofs[new.id] in carried_out:
            is_first = _is_first(new.guid, there) if replaces else True
            answers[new.id] = Written(new.id, new.guid, is_first, there is not None and there.status.running)
        elif there is not None:
            answers[new.id] = Found(there, new.request_guid in carried_out)
    return answers


def _refuse_unless_new(batch: Sequence[NewAction], answers: Mapping[str, Written | Found]) -> None:
    """Of calls that are written only if all are new: refuse all if one is not, or was not and is gone since."""
    for new in batch:
        if isinstance(there := answers.get(new.id), Found) and not there.is_repeated:
            raise ActionExists(new.id, there.action.meta.guid)
    for new in batch:
        if new.id not in answers:
            raise ActionNotFound(new.id)


def _is_first(guid: UUID, there: Action | None) -> bool:
    """Whether that guid was the first of its action. If others wrote since, it was if theirs is the second; if it is a
    later one, nobody knows."""
    return there is not None and there.meta.revision == (1 if there.meta.guid == guid else 2)


def earlier(
    do: Transitions, shard: int, action_id: str, *, guid: UUID, request_guid: UUID
) -> Conversation[Scheduled | None]:
    """What became of an earlier try of a call that changes one action, or of the same request by its name; None if none
    was carried out."""
    carried_out = yield from do.carried_out(sorted({guid, request_guid})).begin()
    if not carried_out:
        return None
    found = yield from do.find([(shard, action_id)]).begin()
    if guid in carried_out:
        return Scheduled(action_id, guid, False, True, running=bool(found) and found[0].status.running)
    return as_found(found[0]) if found else None


async def sent_again(store: Store, operation: Transition[T], calling_off: Transition[None]) -> T:
    """The answer to a change that may be on its way already: what is refused now, or changes nothing, must not be done
    when an earlier try arrives late."""
    with suppress(ActionNotFound, ActionFinished, ActionNotAsSeen, GuidMismatch):
        answer = await store.run(operation)
        if isinstance(answer, Scheduled) and answer.changed:
            return answer
    await store.run(calling_off)
    return await store.run(operation)
