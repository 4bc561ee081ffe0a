"""What the fuzz found, each as small as it could be made; mended since."""

from __future__ import annotations

import datetime
import math
from uuid import UUID

import pytest

from fuzz.commands import Typist
from fuzz.inputs import Input, Made
from fuzz.judge import Judge
from fuzz.machine import Model

HUGE = Made("power", (10, 5000))
"""A number with more digits than Python agrees to write."""


@pytest.mark.parametrize(
    "given",
    [
        Input("schedule_many", (None,)),
        Input("schedule_many", ([],), {"progress": 5}),
        Input("queues.put_many", (None,)),
        Input("queues.put_many", (None,), door="sync"),
        Input("queues.redrive", ("mixed",), {"ids": 5}),
        Input("storage.put_many", (None,)),
        Input("storage.done", (None,)),
        Input("storage.retry", ([None],)),
        Input("storage.set_aside", ([None],)),
        Input("storage.change_settings", (1, None)),
        Input("storage.peek", (HUGE,)),
        Input("queues.dead_letters", ("mixed",), {"limit": HUGE}),
        Input("queues.redrive", ("mixed",), {"ids": datetime.time(12)}, door="sync"),
        Input("queues.purge_dead", ("mixed",), {"ids": 5}, door="sync"),
        Input("storage.extend", ([],), {"only_longer": 1.5}),
        Input("limits.list", (), {"keys": 0}),
        Input("limits.count_keys", (), {"count_max": -1}),
        Input("templates.count", ("news",), {"count_max": None}),
        Input("templates.stop", ("news",), {"progress": 5}),
        Input("shards", (), {"count_max": None}),
        Input("shards", (), {"count_max": -1}),
        Input("release_shard", (2**63, UUID(int=7))),
        Input("release_shard", (0, "abc")),
        Input("semaphore.release", ("pool", "t1"), {"missing_ok": 0}),
        Input("semaphore.release_many", ("pool", ["t1"]), {"missing_ok": HUGE}),
        Input("semaphores.update", ("pool",), {"holds_for_good": 1}),
        Input("prune", (datetime.timedelta(0),), {"progress": 5}),
        Input("prune", (datetime.timedelta(0),), {"dry_run": 1}),
        Input("init", (), {"shards": Made("function")}),
        Input("App", ("sqlite://",), {"installation": datetime.time(12)}),
        Input("App", ("sqlite://",), {"payload_bytes_max": "1"}),
        Input("queues.use", (Made("Contract", (), {"queues": 1.5}),)),
        Input("queues.use", (Made("Contract", (), {"queues": (5,)}),)),
        Input("queues.use", (Made("QueueContract", (), {"id": 1, "name": "emails", "fields": (5,)}),)),
        Input("queues.use", (Made("Field", (), {"name": "to", "type": 5}),)),
        Input("queues.use", (Made("Field", (), {"name": 5, "type": Made("FieldType", ("int",))}),)),
        Input("parse_contract", (None,)),
        Input("parse_contract", ([],)),
        Input("load_contract", (None,)),
        Input("load_contract", (b"contract.yaml",)),
        Input("task_class", (None,)),
        Input("task_class", ([],)),
        Input("decode", ([], [])),
        Input("retry_after", (5,)),
        Input("WorkerPolicy", (), {"heartbeat": datetime.timedelta.max}),
        Input("WorkerPolicy", (), {"lease_margin": datetime.timedelta.max}),
        Input("WorkerPolicy", (), {"attempt_lease": None}),
        Input("WorkerPolicy", (), {"concurrency": 1.5}),
        Input("WorkerPolicy", (), {"concurrency": True}),
        Input("WorkerPolicy", (), {"history_max": math.inf}),
        Input("WorkerPolicy", (), {"history_max": 2**63}),
        Input("WorkerPolicy", (), {"suspects_max": 2**63}),
        Input("WorkerPolicy", (), {"queues_idle_until_told": "x"}),
        Input("storage.done", (None,), door="sync"),
        Input("storage.done", ([None],), door="sync"),
        Input("storage.retry", ([None],), door="sync"),
        Input("storage.set_aside", (5,), door="sync"),
        Input("storage.extend", (None,), door="sync"),
        Input("storage.put_many", (None,), door="sync"),
        Input("storage.look", (None,), door="sync"),
    ],
    ids=repr,
)
def test_what_no_database_can_take_is_refused_in_our_own_words(judge: Judge, given: Input) -> None:
    judge.play([given])
    assert judge.tallies[given.surface].refused == 1


def test_a_file_of_settings_that_is_nested_beyond_reading_is_said_to_be(typist: Typist) -> None:
    typist.play([("settings", [f"--config=toml:a={'[' * 5000}"])])
    assert typist.tallies["matrixsched settings"].refused == 1


def test_a_lane_of_what_has_expired_is_put_off_alike(model: Model) -> None:
    expires_at = datetime.datetime(2030, 1, 1, 0, 0, 30, tzinfo=datetime.UTC)
    options = {"id": "c", "template": "alerts", "limit": "k2", "expires_at": expires_at}
    model.play(
        [
            Input(
                "schedule", ("scripted", {"outcomes": ["done"]}), {**options, "delay": datetime.timedelta(seconds=16)}
            ),
            Input("pass", (1,)),
            Input("worker.run_due", (1,)),
            Input("pass", (60,)),
            Input("worker.run_due", (1,)),
            Input("pass", (5,)),
            Input("worker.run_due", (0,)),
        ]
    )
