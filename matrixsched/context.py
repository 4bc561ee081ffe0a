"""What a handler is told about the attempt it makes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    id: str
    guid: UUID
    handler: str
    version: int
    """Rises with every change of the action: (version, attempt) tells an outside system which call is newer."""
    attempt: int
    tick: int
    tick_at: datetime
    """Which tick of its repetition it is for, or when the action was scheduled for: the same for all attempts at it."""
    scheduled_at: datetime
    """When this attempt was due: with jitter, or after a retry, later than the tick."""
    deadline: datetime
    """When the handler will be cancelled, by the database's clock."""
    failures: int
    """Failed attempts at this tick so far."""
    interruptions: int
    trace: str | None = None
    """Where the action was scheduled, if that was traced: W3C traceparent and, after a space, tracestate."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at the same tick of the same version."""
        return f"{self.id}:{self.guid}:{self.tick}"
