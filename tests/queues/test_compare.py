"""Two contracts: what changed, and whether old tasks can be read by the new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.contracts import VALUES, queues

from matrixsched.queues import Contract, Field, FieldType, QueueContract, decode, encode, task_class
from matrixsched.queues.compare import compare

A = Field(name="a", type=FieldType.INT)
B = Field(name="b", type=FieldType.STRING)
C = Field(name="c", type=FieldType.BOOL)
EXTRA = Field(name="extra", type=FieldType.INTS, default=(1,))


def contract(*fields: Field, **others: Any) -> Contract:
    return Contract(queues=(queue(*fields),), **others)


def queue(*fields: Field, id: int = 1, name: str = "jobs", description: str = "") -> QueueContract:
    return QueueContract(id=id, name=name, fields=fields, description=description)


def of(*queues: QueueContract) -> Contract:
    return Contract(queues=queues)


def told(old: Contract, new: Contract) -> list[tuple[str | None, str | None, str, bool]]:
    changes = compare(old, new)
    assert all(change.why.endswith(".") for change in changes)
    return [(change.queue, change.field, change.what, change.is_compatible) for change in changes]


def test_the_same_contract_has_no_changes() -> None:
    assert compare(contract(A, B), contract(A, B)) == []


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (of(queue()), of(queue(), queue(id=2, name="more")), [("more", None, "the queue is new, with the id 2")]),
        (contract(A), contract(A, EXTRA), [("jobs", "extra", "the field is added at the end")]),
        (contract(), contract(EXTRA), [("jobs", "extra", "the field is added at the end")]),
        (contract(A), contract(replace(A, description="x")), [("jobs", "a", "the description has changed")]),
        (of(queue()), of(queue(description="x")), [("jobs", None, "the description has changed")]),
        (contract(A), contract(A, description="x"), [(None, None, "the description has changed")]),
        (contract(A), contract(A, version=2), [(None, None, "the version is 2, was 1")]),
        (contract(EXTRA), contract(replace(EXTRA, default=())), [("jobs", "extra", "the default has changed")]),
        (contract(A), contract(replace(A, default=1)), [("jobs", "a", "the field has a default now")]),
        (contract(A, B), contract(replace(A, name="x"), B), [("jobs", "a", "the field is called x")]),
        (contract(A), contract(replace(A, type=FieldType.INT64)), [("jobs", "a", "the type is int64, was int")]),
    ],
)
def test_compatible_changes_are_allowed(old: Contract, new: Contract, changes: list[Any]) -> None:
    assert told(old, new) == [(*change, True) for change in changes]


def test_the_order_of_queues_means_nothing() -> None:
    first, second = queue(A), queue(id=2, name="more")
    assert compare(of(first, second), of(second, first)) == []


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (contract(A), contract(replace(A, type=FieldType.STRING)), [("jobs", "a", "the type is string, was int")]),
        (contract(A, B), contract(B, A), [("jobs", None, "the order of the fields is b, a; was a, b")]),
        (contract(A, B), contract(A), [("jobs", "b", "the field is removed")]),
        (contract(A, B), contract(B), [("jobs", "a", "the field is removed")]),
        (contract(A, B), contract(A, C, B), [("jobs", "c", "the field is added at place 2")]),
        (contract(A), contract(EXTRA, replace(A, default=0)), [("jobs", "extra", "the field is added at place 1")]),
        (contract(A), contract(A, B), [("jobs", "b", "the field is added without a default")]),
        (contract(EXTRA), contract(replace(EXTRA, default=None)), [("jobs", "extra", "the default is removed")]),
        (of(queue(), queue(id=2, name="more")), of(queue()), [("more", None, "the queue is removed")]),
        (of(queue()), of(queue(id=2)), [("jobs", None, "the id is 2, was 1")]),
        (of(queue(A)), of(queue(A, name="work")), [("jobs", None, "the queue with the id 1 is called work")]),
        (
            of(queue(), queue(id=2, name="more")),
            of(queue(name="more"), queue(id=2)),
            [("jobs", None, "the id is 2, was 1"), ("more", None, "the id is 1, was 2")],
        ),
        (
            of(queue(), queue(id=2, name="more")),
            of(queue(name="more")),
            [("jobs", None, "the queue with the id 1 is called more"), ("more", None, "the id is 1, was 2")],
        ),
        (contract(version=2), contract(), [(None, None, "the version goes back from 2 to 1")]),
    ],
)
def test_other_changes_are_refused(old: Contract, new: Contract, changes: list[Any]) -> None:
    assert [(*change, False) for change in changes] == [one for one in told(old, new) if not one[3]]


def test_another_field_of_another_type_at_the_same_place_is_refused() -> None:
    assert told(contract(A), contract(B)) == [
        ("jobs", "a", "the field is called b", True),
        ("jobs", "b", "the type is string, was int", False),
    ]


def test_each_refusal_says_what_to_do() -> None:
    (removed,) = compare(contract(A, B), contract(A))
    assert removed.why.endswith("Keep it and ignore it, or make a new queue.")
    live = "`matrixsched actions list --handler queue:jobs --state live` finds none"
    (renamed,) = compare(of(queue()), of(queue(name="work")))
    assert renamed.why.endswith(
        f"Keep the name until {live}, or add a queue of the new name and let this one run empty."
    )
    (gone,) = compare(of(queue(), queue(id=2, name="more")), of(queue(id=2, name="more")))
    assert gone.why.endswith(f"Keep it until it is empty everywhere, and {live}.")


@given(st.data(), queues(st.sampled_from("abcd")), queues(st.sampled_from("abcd")))
def test_what_is_called_compatible_can_be_read(data: st.DataObject, old: QueueContract, new: QueueContract) -> None:
    """Whatever the two are: with every old task, the values stand at their places, and the defaults behind them."""
    is_compatible = all(change.is_compatible for change in compare(of(old), of(new)))
    event(f"compatible: {is_compatible}")
    if is_compatible:
        values: dict[str, Any] = {field.name: data.draw(VALUES[field.type]) for field in old.fields}
        task = decode(new, encode(task_class(old)(**values)))
        found = [getattr(task, field.name) for field in new.fields]
        assert found == [*values.values(), *(field.default for field in new.fields[len(old.fields) :])]
