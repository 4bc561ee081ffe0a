"""Typed queues: batches of tasks whose payloads a contract describes."""

from __future__ import annotations

from matrixsched.queues.codec import decode, encode
from matrixsched.queues.contracts import load_contract, parse_contract
from matrixsched.queues.delivery import put_into
from matrixsched.queues.memory import MemoryStorage
from matrixsched.queues.results import (
    BatchResult,
    DeadLetter,
    Done,
    HandlerStats,
    ItemResult,
    RetryAt,
    retry_or_bury,
)
from matrixsched.queues.storage import QueueStorage, SyncQueueStorage
from matrixsched.queues.tasks import QueueTask, task_class
from matrixsched.rules.contract import Contract, Field, FieldType, QueueContract
from matrixsched.rules.queues import DeadTask, NewItem, QueueStat, Receipt, Settled, StoredTask

__all__ = [
    "BatchResult",
    "Contract",
    "DeadLetter",
    "DeadTask",
    "Done",
    "Field",
    "FieldType",
    "HandlerStats",
    "ItemResult",
    "MemoryStorage",
    "NewItem",
    "QueueContract",
    "QueueStat",
    "QueueStorage",
    "QueueTask",
    "Receipt",
    "RetryAt",
    "Settled",
    "StoredTask",
    "SyncQueueStorage",
    "decode",
    "encode",
    "load_contract",
    "parse_contract",
    "put_into",
    "retry_or_bury",
    "task_class",
]
