"""What makes the tables of a new installation distributed, after its migrations."""

from __future__ import annotations

from matrixsched.store.migrations import schema_folder, statements_of
from matrixsched.store.statements import namespace, render

FILE = "distributed.sql"
SHARDED = (
    "shard_locks",
    "scheduled_actions",
    "incoming_queue",
    "processing_queue",
    "attempt_history",
    "action_requests",
)
"""Spread by their shard; the rows of a shard are together."""
COPIED = ("limits",)
"""Few rows that are read beside those of a shard: a copy is on every node. All other tables stay where they are made:
no statement reads them together with those of a shard."""
OLDEST_LIBRARY = 9
"""Libraries of older schemas do not know of this form."""


def distributing(installation: str, *, on_citus: bool) -> list[str]:
    """The statements, in their order; with the extension Citus also those that spread the tables over its nodes."""
    text = schema_folder().joinpath("postgresql").joinpath(FILE).read_text("utf-8")
    made = statements_of(render("postgresql", installation, text))
    return [*made, *_spreading(namespace("postgresql", installation))] if on_citus else made


def _spreading(prefix: str) -> list[str]:
    first, *others = SHARDED
    return [
        f"select create_distributed_table('{prefix}{first}', 'shard_id', colocate_with => 'none')",
        *(
            f"select create_distributed_table('{prefix}{table}', 'shard_id', colocate_with => '{prefix}{first}')"
            for table in others
        ),
        *(f"select create_reference_table('{prefix}{table}')" for table in COPIED),
    ]
