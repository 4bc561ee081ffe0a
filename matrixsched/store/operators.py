"""The part of the protocol for whoever looks after the fleet: what operators did, and what workers did lately."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from matrixsched.rules.action import Outcome
from matrixsched.rules.audit import AuditEntry, AuditOutcome, Via
from matrixsched.rules.minutes import Fleet, WorkerMinute, WorkerSeen
from matrixsched.store.transition import Transition

DECODED_MAX = 10_000
"""Whoever looks at an hour every few seconds reads the same texts again, of minutes that are long over."""


class Operators(Protocol):
    def begin_audit(
        self, guid: UUID, *, who: str, via: Via, verb: str, subject: str, before: Mapping[str, object]
    ) -> Transition[None]:
        """Write down what is about to be done; sent again it does nothing."""
        ...

    def end_audit(self, guid: UUID, outcome: AuditOutcome, after: Mapping[str, object]) -> Transition[bool]:
        """Add how it ended; False if that was told before."""
        ...

    def audit_page(self, before: AuditEntry | None, *, limit: int) -> Transition[list[AuditEntry]]:
        """Entries, newest first, those older than the last one of the page before."""
        ...

    def prune_audit(self, *, keep: timedelta, limit: int) -> Transition[int]: ...

    def report_worker(
        self, told: WorkerMinute, *, slots: int, running: int, handlers: Sequence[str], others_within: timedelta
    ) -> Transition[Fleet]:
        """A worker is there; what it says of a minute stands in the place of what it said before. The fleet, as
        others reported so lately."""
        ...

    def leave_worker(self, name: str) -> Transition[bool]:
        """A worker is there no more; False if that is known."""
        ...

    def workers_seen(self) -> Transition[list[WorkerSeen]]:
        """All that did not leave, by name; those that were killed among them until they are forgotten."""
        ...

    def worker_minutes(self, *, since: timedelta) -> Transition[list[WorkerMinute]]:
        """What workers said of the minutes that began so lately, oldest first."""
        ...

    def prune_workers(self, *, keep: timedelta, limit: int) -> Transition[int]:
        """Forget minutes that are older, and workers that were not heard of for so long."""
        ...


def encode_facts(facts: Mapping[str, object]) -> str:
    """As JSON; what JSON does not know, such as a time, becomes a text."""
    return json.dumps(facts, ensure_ascii=False, default=str)


def encode_names(names: Sequence[str]) -> str:
    return json.dumps(list(names), ensure_ascii=False)


def decode_names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def decode_fleet(shards: int, workers: str) -> Fleet:
    """`workers`: how many there are of each kind; the handlers of a kind are JSON themselves."""
    return Fleet(shards, {decode_names(names): count for names, count in json.loads(workers).items()})


def encode_outcomes(outcomes: Mapping[Outcome, int]) -> str:
    return json.dumps({outcome.value: count for outcome, count in sorted(outcomes.items())})


@lru_cache(DECODED_MAX)
def decode_outcomes(text: str) -> Mapping[Outcome, int]:
    return {Outcome(name): count for name, count in json.loads(text).items()}


def encode_late(late: Sequence[int]) -> str:
    return json.dumps(list(late))


@lru_cache(DECODED_MAX)
def decode_late(text: str) -> tuple[int, ...]:
    return tuple(json.loads(text))
