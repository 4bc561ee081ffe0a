"""What has changed between two contracts, and whether tasks that were put by the old one can be read by the new one.

Fields are known by their places: that is what is stored. So the name of one may change where it stands, and a change
that moves a place is refused. Queues are known by both: tasks that were put bear the id, and actions that are still to
become tasks (`put_into`) the name. So neither may change, nor may a queue go, while any of them are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from matrixsched.queues.delivery import put_into
from matrixsched.rules.contract import Contract, Field, FieldType, QueueContract


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    queue: str | None
    """None: of the whole contract."""
    field: str | None
    what: str
    why: str
    """Why it is compatible or not; in the end what to do, if there is something to do."""
    is_compatible: bool


def compare(old: Contract, new: Contract) -> list[Change]:
    """All changes, in the order of the old contract and then of the new one."""
    return [*_contract_changes(old, new), *_queues_changes(old, new)]


def _contract_changes(old: Contract, new: Contract) -> Iterator[Change]:
    if new.version < old.version:
        yield _refused(
            None,
            None,
            f"the version goes back from {old.version} to {new.version}",
            "The old contract would be the newer one: swap the two, or raise the version.",
        )
    elif new.version > old.version:
        yield _allowed(None, None, f"the version is {new.version}, was {old.version}", "It is for people alone.")
    if new.description != old.description:
        yield _allowed(None, None, "the description has changed", "It is for people alone.")


def _queues_changes(old: Contract, new: Contract) -> Iterator[Change]:
    old_names, old_ids = {queue.name for queue in old.queues}, {queue.id for queue in old.queues}
    by_id, by_name = {queue.id: queue for queue in new.queues}, {queue.name: queue for queue in new.queues}
    for queue in old.queues:
        namesake, heir = by_name.get(queue.name), by_id.get(queue.id)
        if namesake is not None and namesake.id != queue.id:
            yield _renumbered(queue, namesake)
        elif heir is None:
            yield _refused(
                queue.name,
                None,
                "the queue is removed",
                f"Tasks in queue {queue.id} would be handled by nobody. Keep it until it is empty everywhere, and "
                f"{_actions_for(queue)} finds none.",
            )
        else:
            yield from _renamed_queue(queue, heir, taken=heir.name in old_names)
            yield from _queue_changes(queue, heir)
    for queue in new.queues:
        if queue.id not in old_ids and queue.name not in old_names:
            yield _allowed(queue.name, None, f"the queue is new, with the id {queue.id}", "Nothing was put there yet.")


def _renumbered(old: QueueContract, new: QueueContract) -> Change:
    return _refused(
        old.name,
        None,
        f"the id is {new.id}, was {old.id}",
        f"Tasks that were put stay in queue {old.id}. Leave the id, or add a queue of another name.",
    )


def _renamed_queue(old: QueueContract, new: QueueContract, *, taken: bool) -> Iterator[Change]:
    if new.name == old.name:
        return
    what = f"the queue with the id {old.id} is called {new.name}"
    if taken:
        yield _refused(
            old.name, None, what, f"That was the name of another queue. Leave {old.name} its id, or choose a new name."
        )
    else:
        why = (
            f"Actions that were scheduled by put_into name it {old.name}: nobody would carry them out. Keep the name "
            f"until {_actions_for(old)} finds none, or add a queue of the new name and let this one run empty."
        )
        yield _refused(old.name, None, what, why)


def _actions_for(queue: QueueContract) -> str:
    """The command that finds what is still to become tasks of it."""
    return f"`matrixsched actions list --handler {put_into(queue.name)} --state live`"


# The fields of one queue.


def _queue_changes(old: QueueContract, new: QueueContract) -> Iterator[Change]:
    if new.description != old.description:
        yield _allowed(new.name, None, "the description has changed", "It is for people alone.")
    pairs = _pairs(old, new)
    yield from _order_changes(old, new)
    for before in old.fields:
        after = pairs.get(before.name)
        if after is None:
            yield _refused(
                new.name,
                before.name,
                "the field is removed",
                "Tasks that were put still have it, at its place. Keep it and ignore it, or make a new queue.",
            )
        else:
            yield from _field_changes(new.name, before, after)
    kept = {field.name for field in pairs.values()}
    for place, field in enumerate(new.fields):
        if field.name not in kept:
            yield _added(old, new, field, place)


def _pairs(old: QueueContract, new: QueueContract) -> dict[str, Field]:
    """What has become of each field, by its old name: the one of that name, or one of a new name at its place."""
    old_names, new_by_name = {field.name for field in old.fields}, {field.name: field for field in new.fields}
    pairs = {field.name: new_by_name[field.name] for field in old.fields if field.name in new_by_name}
    if len(new.fields) < len(old.fields):
        return pairs  # some are removed, so what stands at a place is no sign
    for before, after in zip(old.fields, new.fields, strict=False):
        if before.name not in new_by_name and after.name not in old_names:
            pairs[before.name] = after
    return pairs


def _order_changes(old: QueueContract, new: QueueContract) -> Iterator[Change]:
    old_names, new_names = [field.name for field in old.fields], [field.name for field in new.fields]
    before = [name for name in old_names if name in new_names]
    after = [name for name in new_names if name in old_names]
    if before != after:
        yield _refused(
            new.name,
            None,
            f"the order of the fields is {', '.join(after)}; was {', '.join(before)}",
            "Tasks are stored without names: values would be mistaken for one another. Restore the order.",
        )


def _field_changes(queue: str, old: Field, new: Field) -> Iterator[Change]:
    if new.name != old.name:
        why = "Tasks know their fields by place. If it is not the same value under a new name, add a field at the end."
        yield _allowed(queue, old.name, f"the field is called {new.name}", why)
    if new.type is not old.type:
        yield _retyped(queue, old, new)
    if new.description != old.description:
        yield _allowed(queue, new.name, "the description has changed", "It is for people alone.")
    if new.default == old.default and type(new.default) is type(old.default):
        return
    if new.default is None:
        yield _refused(
            queue,
            new.name,
            "the default is removed",
            "Tasks that were put before the field was added lack it, and could not be read. Leave the default.",
        )
    elif old.default is None:
        yield _allowed(queue, new.name, "the field has a default now", "Tasks that were put have a value of their own.")
    else:
        why = "Tasks that were put before the field was added are now read with the new one."
        yield _allowed(queue, new.name, "the default has changed", why)


def _retyped(queue: str, old: Field, new: Field) -> Change:
    what = f"the type is {new.type}, was {old.type}"
    if _stored_as(new.type) is _stored_as(old.type):
        return _allowed(queue, new.name, what, "Both are stored alike, in 64 bits.")
    why = "Tasks that were put could not be read. Leave the type, and add a field at the end, with a default."
    return _refused(queue, new.name, what, why)


def _stored_as(type: FieldType) -> FieldType:
    return {FieldType.INT: FieldType.INT64, FieldType.INTS: FieldType.INT64S}.get(type, type)


def _added(old: QueueContract, new: QueueContract, field: Field, place: int) -> Change:
    if place < len(old.fields):
        return _refused(
            new.name,
            field.name,
            f"the field is added at place {place + 1}",
            "Tasks that were put have another value there. Add it at the end.",
        )
    if field.default is None:
        return _refused(
            new.name,
            field.name,
            "the field is added without a default",
            "Tasks that were put lack it, and could not be read. Give it a default.",
        )
    why = (
        "Tasks that were put lack it, and are read with its default. Workers of the old contract leave the new tasks "
        "alone: deploy workers first, then whoever puts."
    )
    return _allowed(new.name, field.name, "the field is added at the end", why)


def _allowed(queue: str | None, field: str | None, what: str, why: str) -> Change:
    return Change(queue=queue, field=field, what=what, why=why, is_compatible=True)


def _refused(queue: str | None, field: str | None, what: str, why: str) -> Change:
    return Change(queue=queue, field=field, what=what, why=why, is_compatible=False)
