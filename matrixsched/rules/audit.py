"""What operators did: who, when, by which way, what it was done to, how that stood before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class Via(StrEnum):
    COMMAND = "command"
    API = "api"
    DASHBOARD = "dashboard"


class AuditOutcome(StrEnum):
    BEGUN = "begun"
    """Nobody told how it ended: it is under way, or whoever did it died."""
    DONE = "done"
    UNCHANGED = "unchanged"
    """There was nothing to change: it was so already, or the same request was carried out before."""
    REFUSED = "refused"
    """It could not be done as it was asked for, and nothing was changed."""
    FAILED = "failed"
    """Perhaps a part of it was done, or all."""


def outcome_of(stored: str, after: Mapping[str, object]) -> AuditOutcome:
    """What is done without a change is stored as done; what came of it tells the rest."""
    outcome = AuditOutcome(stored)
    return AuditOutcome.UNCHANGED if outcome is AuditOutcome.DONE and after.get("changed") is False else outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    guid: UUID
    who: str
    via: Via
    verb: str
    subject: str
    before: Mapping[str, object]
    asked_at: datetime
    outcome: AuditOutcome = AuditOutcome.BEGUN
    after: Mapping[str, object]
    ended_at: datetime | None = None
