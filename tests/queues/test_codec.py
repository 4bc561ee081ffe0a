"""Tasks as bytes, and back; by the contract of today, by an older and by a newer one."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.contracts import VALUES, queues

from matrixsched.errors import BadInput, InvalidTask, MatrixSchedError, TaskTooNew, TaskUnreadable
from matrixsched.queues import (
    Field,
    FieldType,
    QueueContract,
    QueueTask,
    StoredTask,
    decode,
    encode,
    task_class,
)
from matrixsched.rules.queues import Receipt

ALL = QueueContract(
    id=5,
    name="all_types",
    fields=tuple(Field(name=type.name.lower() + "_x", type=type) for type in FieldType),
    description="One of each",
)
GOOD: dict[str, Any] = {
    "int_x": -5,
    "int64_x": 2**63 - 1,
    "string_x": "ü\0",
    "bool_x": True,
    "bytes_x": b"\0\xff",
    "ints_x": (1, -(2**63)),
    "int64s_x": (),
}
SECRET = "hunter2"


def stored(data: bytes, *, queue: int = 5) -> StoredTask:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return StoredTask(
        id=42,
        queue=queue,
        data=data,
        attempts=3,
        created_at=now,
        start_at=now,
        previous_start_at=None,
        receipt=Receipt(42, UUID(int=7)),
    )


def emails(*fields: Field) -> QueueContract:
    return QueueContract(id=5, name="emails", fields=fields)


TO = Field(name="to", type=FieldType.STRING)
TRIES = Field(name="tries", type=FieldType.INT, default=7)
TAGS = Field(name="tags", type=FieldType.INTS, default=(1, 2))
BODY = Field(name="body", type=FieldType.BYTES, default=b"\0")


# Classes at run time.


def test_a_class_is_made_of_the_contract() -> None:
    kind = task_class(ALL)
    assert (kind.__name__, kind.__doc__, kind.__contract__) == ("AllTypesTask", "One of each", ALL)
    assert task_class(ALL) is kind
    task = kind(**GOOD)
    assert {name: getattr(task, name) for name in GOOD} == GOOD
    assert task == kind(**GOOD)
    assert not hasattr(task, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.int_x = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="int_x"):
        kind(**{name: value for name, value in GOOD.items() if name != "int_x"})


def test_defaults_need_not_be_given_and_lists_become_tuples() -> None:
    kind = task_class(emails(TO, TRIES, TAGS, BODY))
    assert kind(to="a") == kind(to="a", tries=7, tags=[1, 2], body=b"\0")  # type: ignore[call-arg]
    assert kind(to="a", tags=[3]).tags == (3,)  # type: ignore[call-arg, attr-defined]


def test_a_task_that_was_not_taken_has_no_id() -> None:
    with pytest.raises(BadInput, match="was not taken from a queue"):
        _ = task_class(ALL)(**GOOD).task_id


# There and back.


def test_a_task_is_an_array_in_the_order_of_the_fields() -> None:
    data = encode(task_class(ALL)(**GOOD))
    assert msgspec.msgpack.decode(data) == [-5, 2**63 - 1, "ü\0", True, b"\0\xff", [1, -(2**63)], []]


def test_a_task_that_was_taken_knows_how() -> None:
    taken = stored(encode(task_class(ALL)(**GOOD)))
    task = decode(ALL, taken)
    assert task == task_class(ALL)(**GOOD)
    assert (task.task_id, task.attempts, task.receipt, task.stored) == (42, 3, taken.receipt, taken)
    assert decode(task_class(ALL), taken) == decode(ALL, taken.data) == task


@given(st.data(), queues())
def test_every_task_comes_back_as_it_was(data: st.DataObject, queue: QueueContract) -> None:
    values: dict[str, Any] = {field.name: data.draw(VALUES[field.type]) for field in queue.fields}
    task = task_class(queue)(**values)
    back = decode(queue, encode(task))
    assert back == task
    found = {name: getattr(back, name) for name in values}
    assert found == values
    assert [type(one) for one in found.values()] == [type(one) for one in values.values()]


@given(st.binary())
def test_whatever_the_bytes_are_only_our_errors_are_raised(data: bytes) -> None:
    with suppress(TaskUnreadable, TaskTooNew):
        decode(ALL, data)


# What cannot be written.


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("int_x", True, "is of type bool, must be int"),
        ("int_x", 1.0, "is of type float, must be int"),
        ("int_x", None, "is of type NoneType, must be int"),
        ("int_x", 2**63, "is outside of 64 bits: it must be from -2**63 to 2**63 - 1"),
        ("int64_x", -(2**63) - 1, "is outside of 64 bits"),
        ("string_x", b"a", "is of type bytes, must be str"),
        ("string_x", FieldType.INT, "is of type FieldType, must be str"),
        ("string_x", "\ud800", "holds a lone surrogate, which is not text"),
        ("bool_x", 1, "is of type int, must be bool"),
        ("bytes_x", SECRET, "is of type str, must be bytes"),
        ("bytes_x", bytearray(b"a"), "is of type bytearray, must be bytes"),
        ("bytes_x", memoryview(b"a"), "is of type memoryview, must be bytes"),
        ("ints_x", 5, "is of type int, must be tuple or list of int"),
        ("ints_x", (1, True), "is of type bool, must be int (number 2 of 2)"),
        ("ints_x", b"ab", "is of type bytes, must be tuple"),
        ("int64s_x", [2**63], "is outside of 64 bits: it must be from -2**63 to 2**63 - 1 (number 1 of 1)"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field: str, value: Any, why: str) -> None:
    task = task_class(ALL)(**{**GOOD, field: value})
    with pytest.raises(InvalidTask) as refused:
        encode(task)
    assert (refused.value.queue, refused.value.field) == ("all_types", field)
    assert f"queue 'all_types' cannot be written: its field {field!r} {why}" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_what_is_no_task_is_refused() -> None:
    for wrong in (QueueTask(), "text"):
        with pytest.raises(BadInput, match="is no class of tasks"):
            encode(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="is no class of tasks"):
        decode("emails", b"\x90")  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="a stored task or bytes can be decoded, not str"):
        decode(ALL, "text")  # type: ignore[call-overload]


# What cannot be read, and what was written by others.


def test_a_task_that_was_put_before_fields_were_added_is_completed() -> None:
    old, new = emails(TO), emails(TO, TRIES, TAGS, BODY)
    data = encode(task_class(old)(to="a"))  # type: ignore[call-arg]
    task = decode(new, stored(data))
    assert task == task_class(new)(to="a", tries=7, tags=(1, 2), body=b"\0")  # type: ignore[call-arg]
    assert task.task_id == 42
    assert decode(emails(), encode(task_class(emails())())) == task_class(emails())()


def test_a_task_of_a_newer_contract_is_left_to_those_who_have_it() -> None:
    data = encode(task_class(emails(TO, TRIES))(to=SECRET))  # type: ignore[call-arg]
    with pytest.raises(TaskTooNew) as refused:
        decode(emails(TO), stored(data))
    error = refused.value
    assert (error.queue, error.task_id, error.fields, error.known) == ("emails", 42, 2, 1)
    assert str(error).startswith("task 42 of queue 'emails' was written by a newer contract: it has 2 fields")
    assert not isinstance(error, TaskUnreadable), "what is set aside as unreadable would be lost to the newer ones"


@pytest.mark.parametrize(
    ("data", "field", "why"),
    [
        (b"", None, "it is not a msgpack array"),
        (b"\xc1", None, "it is not a msgpack array"),
        (msgspec.msgpack.encode(SECRET), None, "it is not a msgpack array"),
        (msgspec.msgpack.encode({"to": SECRET}), None, "it is not a msgpack array"),
        (msgspec.msgpack.encode([SECRET, 1]) + b"\0", None, "it is not a msgpack array"),
        (b"\x91" * 100_000, None, "it is not a msgpack array"),
        (b"\xdd\xff\xff\xff\xff", None, "it is not a msgpack array"),
        (msgspec.msgpack.encode([]), "to", "its field 'to' is not there, and has no default"),
        (msgspec.msgpack.encode([None, 1]), "to", "its field 'to' is not of type string"),
        (b"\x92\xa1\xff\x01", "to", "its field 'to' is not of type string"),
        (msgspec.msgpack.encode([SECRET, SECRET]), "tries", "its field 'tries' is not of type int"),
        (msgspec.msgpack.encode([SECRET, 2**63]), "tries", "its field 'tries' is not of type int"),
        (msgspec.msgpack.encode([SECRET, True]), "tries", "its field 'tries' is not of type int"),
        (msgspec.msgpack.encode([SECRET, 1.0]), "tries", "its field 'tries' is not of type int"),
        (msgspec.msgpack.encode([SECRET, 1, [2**64 - 1]]), "tags", "its field 'tags' is not of type []int"),
        (msgspec.msgpack.encode([SECRET, 1, [], SECRET]), "body", "its field 'body' is not of type []byte"),
    ],
    ids=lambda data: repr(data[:20]) if isinstance(data, bytes) else None,
)
def test_what_is_not_as_the_contract_says_is_unreadable(data: bytes, field: str | None, why: str) -> None:
    for given_data, id in ((stored(data), 42), (data, None)):
        with pytest.raises(TaskUnreadable) as refused:
            decode(emails(TO, TRIES, TAGS, BODY), given_data)
        error = refused.value
        assert (error.queue, error.task_id, error.field) == ("emails", id, field)
        assert f"of queue 'emails' cannot be read: {why}. " in str(error)
        assert SECRET not in str(error)
        assert error.__cause__ is None
        assert isinstance(error, MatrixSchedError)


def test_a_task_of_another_queue_is_not_read() -> None:
    with pytest.raises(BadInput, match="task 42 is of queue 6, but EmailsTask is for queue 5"):
        decode(emails(TO), stored(b"\x91\xa1a", queue=6))
