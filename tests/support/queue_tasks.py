"""Queues for tests: a contract with two kinds of tasks."""

from __future__ import annotations

from typing import Any

import msgspec

from matrixsched.queues import Contract, Field, FieldType, QueueContract, encode, task_class

EMAILS, SMS = 1, 2
CONTRACT = Contract(
    version=1,
    description="Messages",
    queues=(
        QueueContract(id=EMAILS, name="emails", fields=(Field(name="to", type=FieldType.STRING),)),
        QueueContract(id=SMS, name="sms", fields=(Field(name="number", type=FieldType.INT),)),
    ),
)
NEWER = msgspec.msgpack.encode(["bob", "of a newer contract"])


def contract_of(number: int, name: str, *texts: str) -> QueueContract:
    """A queue whose tasks have these texts."""
    return QueueContract(id=number, name=name, fields=tuple(Field(name=one, type=FieldType.STRING) for one in texts))


Email: Any = task_class(CONTRACT.queue("emails"))
Sms: Any = task_class(CONTRACT.queue("sms"))

__all__ = ["CONTRACT", "EMAILS", "NEWER", "SMS", "Email", "Sms", "contract_of", "encode"]
