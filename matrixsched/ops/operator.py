"""Whoever changes something, and the way by which: nothing is changed without a trace in the audit log.

An entry is written before anything is changed, and completed when it is known what came of it. If that cannot be
written, it says `begun` for ever: somebody asked for it, and nobody told how it ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from uuid import UUID

import anyio

from matrixsched.app import App
from matrixsched.errors import DatabaseError, MatrixSchedError, OutcomeUnknown
from matrixsched.ops.render import Facts, plain
from matrixsched.rules.audit import AuditEntry, AuditOutcome, Via

WHO_MAX = 200
SUBJECT_MAX = 1000
IDS_TEXT_MAX = 20_000
"""So many characters of ids are kept in an entry; of those beyond, how many they were."""
FAREWELL_S = 5.0
"""So long at most is tried to tell how something ended that was cut off."""


@dataclass(slots=True)
class Note:
    """What whoever changes something adds to its entry."""

    after: Facts = field(default_factory=dict)
    is_done: bool = False
    """Something of it was done, and stays so whatever comes next."""
    is_change: bool = True
    """False: there was nothing to change."""

    def tell(self, after: Facts, *, is_done: bool = True) -> None:
        """How it stands after a step of several."""
        self.after, self.is_done = after, is_done


def subject_of(ids: Sequence[str]) -> str:
    """As many as fit into the subject of an entry, and how many more there are."""
    kept = _fitting(ids, SUBJECT_MAX - len(f" and {len(ids):,} more"))
    rest = f" and {len(ids) - len(kept):,} more" if len(kept) < len(ids) else ""
    return ", ".join(kept) + rest


def ids_facts(ids: Sequence[str], count: int | None = None) -> Facts:
    """Which they are; `count`: how many there are, if not all are told here."""
    kept = _fitting(ids, IDS_TEXT_MAX)
    cut = (len(ids) if count is None else count) - len(kept)
    return {"ids": kept, **({"ids_not_listed": cut} if cut else {})}


def _fitting(ids: Sequence[str], most: int) -> list[str]:
    ends = accumulate(len(id) + len(", ") for id in ids)
    return [id for id, end in zip(ids, ends, strict=True) if end <= most + len(", ")]


@dataclass(frozen=True, slots=True)
class Operator:
    app: App
    who: str
    via: Via
    notes: list[Note] = field(default_factory=list, compare=False)
    """Of what was begun, in its order."""

    @property
    def done(self) -> list[Facts]:
        """What was done so far, so that nobody is told of an error later on that nothing was."""
        return [note.after for note in self.notes if note.is_done]

    @asynccontextmanager
    async def noting(self, verb: str, subject: str, before: Facts | None = None) -> AsyncIterator[Note]:
        """Around a change: written down before it, and with what came of it afterwards."""
        guid, note = self.app.chance.guid(), Note()
        self.notes.append(note)
        await self.app.store.run(
            self.app.store.transitions.begin_audit(
                guid,
                who=self.who[:WHO_MAX],
                via=self.via,
                verb=verb,
                subject=subject if len(subject) <= SUBJECT_MAX else f"{subject[: SUBJECT_MAX - 1]}…",
                before=plain(before or {}),
            )
        )
        try:
            yield note
        except MatrixSchedError as error:
            is_open = note.is_done or isinstance(error, OutcomeUnknown)
            outcome = AuditOutcome.FAILED if is_open else AuditOutcome.REFUSED
            await self._end(guid, outcome, {**note.after, "error": str(error)})
            raise
        except BaseException as error:
            await self._end(guid, AuditOutcome.FAILED, {**note.after, "error": type(error).__name__})
            raise
        note.is_done = True
        await self._end(guid, AuditOutcome.DONE, {**note.after, **({} if note.is_change else {"changed": False})})

    async def _end(self, guid: UUID, outcome: AuditOutcome, after: Facts) -> None:
        """What was done is done, also if this cannot be told any more."""
        with suppress(DatabaseError), anyio.move_on_after(FAREWELL_S, shield=True):
            await self.app.store.run(self.app.store.transitions.end_audit(guid, outcome, plain(after)))


def audit_row(entry: AuditEntry) -> Facts:
    return {
        "asked_at": entry.asked_at,
        "who": entry.who,
        "via": entry.via.value,
        "verb": entry.verb,
        "subject": entry.subject,
        "outcome": entry.outcome.value,
        "before": dict(entry.before),
        "after": dict(entry.after),
        "ended_at": entry.ended_at,
        "guid": str(entry.guid),
    }


async def audit_page(app: App, before: AuditEntry | None = None, *, limit: int = 100) -> list[AuditEntry]:
    async with app:
        return await app.store.run(app.store.transitions.audit_page(before, limit=limit))
