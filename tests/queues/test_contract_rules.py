"""Contracts made in Python: they obey the same rules as those in files."""

from __future__ import annotations

from typing import Any

import pytest

from matrixsched.errors import BadInput, InvalidContract
from matrixsched.queues import Contract, Field, FieldType, QueueContract

A = Field(name="a", type=FieldType.INT)
B = Field(name="b", type=FieldType.INT, default=1)


def queue(*fields: Field, id: Any = 1, name: str = "jobs", description: str = "") -> QueueContract:
    return QueueContract(id=id, name=name, fields=fields, description=description)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Field(name="A", type=FieldType.INT), "the name of field 'A' is not in snake_case"),
        (lambda: Field(name="stored", type=FieldType.INT), "the name of field 'stored' is what every task has"),
        (lambda: Field(name="a", type=FieldType.INT, default=True), "default of field 'a' is of type bool, must be"),
        (lambda: Field(name="a", type=FieldType.INT, default=2**63), "the default of field 'a' is outside of 64 bits"),
        (lambda: Field(name="a", type=FieldType.INT, description="\x07"), "description of field 'a' holds .* U\\+0007"),
        (lambda: queue(name="Jobs"), "the name of queue 'Jobs' is not in snake_case"),
        (lambda: queue(name="stored"), "would make a class StoredTask"),
        (lambda: queue(id=0), "the id of queue 'jobs' is 0: use 1 to 2147483647"),
        (lambda: queue(id=True), "the id of queue 'jobs' is True"),
        (lambda: queue(A, A), "queue 'jobs' has two fields named 'a'"),
        (lambda: queue(B, A), "queue 'jobs': the field 'a' has no default, but one before it does"),
        (lambda: queue(description="\ud800"), r"holds the character U\+D800"),
        (lambda: Contract(queues=()), "the contract has no queues"),
        (lambda: Contract(queues=(queue(),), version=0), "the version is 0"),
        (lambda: Contract(queues=(queue(), queue(name="other"))), "two queues have the id 1"),
        (lambda: Contract(queues=(queue(), queue(id=2))), "two queues have the name 'jobs'"),
        (lambda: Contract(queues=(queue(name="a_b1"), queue(id=2, name="a_b_1"))), "two queues have the class 'AB1"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(make: Any, told: str) -> None:
    with pytest.raises(InvalidContract, match=told) as refused:
        make()
    assert isinstance(refused.value, BadInput)


def test_a_default_that_is_a_list_becomes_a_tuple() -> None:
    field = Field(name="a", type=FieldType.INTS, default=[1, 2])  # type: ignore[arg-type]
    assert field.default == (1, 2)
    assert hash(queue(field)) == hash(queue(field))
