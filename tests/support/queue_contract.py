"""Three queues whose tasks take their time."""

from __future__ import annotations

from matrixsched.queues import Contract, Field, FieldType, QueueContract

NAMES = ("emails", "sms", "reports")
CONTRACT = Contract(
    version=1,
    description="What workers of the tests handle",
    queues=tuple(
        QueueContract(id=number, name=name, fields=(Field(name="number", type=FieldType.INT),))
        for number, name in enumerate(NAMES, 1)
    ),
)
TASK_S = 0.01
"""How long a task takes; a batch as long as all of its tasks."""
