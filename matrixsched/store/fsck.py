"""The part of the protocol that looks for faults and mends them.

All rows of an action are in one shard, and a fault is judged by one statement, hence in one snapshot: whatever others
do meanwhile, nothing is found that was not there. Slices of a shard bound what a statement reads; nothing is locked.

A mend finds its fault anew in the statement that writes, waits for nobody for long, and does nothing if it is gone.

What the two databases do differently is asked of the class that this is a part of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from matrixsched.rules.faults import Fault, Finding
from matrixsched.rules.names import shard_of
from matrixsched.store.transition import Ask, Conversation, Row, Transition, transition

CHORES = ("balance", "lanes", "plan", "queues", "tidy")
"""Their rows are part of the schema."""
AFTER_ALL = "\U0010ffff" * 65
"""No id comes after it."""
LOCK_TIMEOUT = timedelta(milliseconds=100)
"""How long the move of an action to its shard may wait."""

UNWANTED = (Fault.DEAD, Fault.ORPHAN, Fault.FINISHED, Fault.STRAY)
"""Rows for which there is no live action; whichever it is, they go by the same statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckTerms:
    """What is wrong depends on these."""

    shard_count: int
    attempt_lease_max: timedelta
    """No lease of an attempt reaches further, and no lock was taken later."""
    visibility_max: timedelta
    """No task of a queue is taken for longer."""
    limit: int
    """How many faults one statement tells of, two at least."""


@dataclass(frozen=True, slots=True, order=True)
class FsckPosition:
    """From where on faults are looked for, in the order of ids; those of an action in the order of its versions."""

    action_id: str = ""
    guid: str = ""
    """Of a version; empty: from what is of the action itself, which comes first."""

    @property
    def from_guid(self) -> UUID:
        return UUID(self.guid) if self.guid else UUID(int=0)


@dataclass(frozen=True, slots=True)
class Slice:
    """What was found among the next actions of a shard."""

    findings: Sequence[Finding]
    actions: int
    following: FsckPosition | None
    """Where to go on; None: that were the last ones."""


class Fsck(Protocol):
    def find_stray_shards(self, terms: FsckTerms) -> Transition[list[int]]:
        """Shards that do not exist, and have rows all the same."""
        ...

    def find_in_installation(self, terms: FsckTerms) -> Transition[Sequence[Finding]]:
        """Faults of what belongs to no action."""
        ...

    def find_in_slice(self, shard: int, terms: FsckTerms, *, first: FsckPosition, size: int) -> Transition[Slice]:
        """Faults of the next `size` actions of a shard, from `first` on; of fewer, or a part of one, if it has many."""
        ...

    def find_again(self, shard: int, terms: FsckTerms, action_id: str) -> Transition[Sequence[Finding]]:
        """Faults of one action."""
        ...

    def mend(self, findings: Sequence[Finding], terms: FsckTerms) -> Transition[list[Finding]]:
        """Mend faults, all of one kind and in one shard, that are still there; those that were mended."""
        ...


class Fscking:
    """Finding and mending, in terms of what a database can be asked."""

    @abstractmethod
    def _ask_about(self, name: str, terms: FsckTerms, **parameters: object) -> Ask:
        """A statement with the parameters that its terms are."""

    @abstractmethod
    def _parts(self, fault: Fault) -> tuple[str, ...]:
        """The statements that mend it, in their order."""

    _dropping: tuple[str, ...]
    """The statements that let an action go which has a namesake in another shard."""

    @abstractmethod
    def _keys(self, findings: Sequence[Finding]) -> dict[str, object]:
        """The parameters that say where to mend."""

    @transition
    def find_stray_shards(self, terms: FsckTerms) -> Conversation[list[int]]:
        rows = yield self._ask_about("find_in_installation.strays", terms)
        return [row["shard_id"] for row in rows]

    @transition
    def find_in_installation(self, terms: FsckTerms) -> Conversation[Sequence[Finding]]:
        locks = yield self._ask_about("find_in_installation.locks", terms)
        chores = yield self._ask_about("find_in_installation.chores", terms)
        others = yield self._ask_about("find_in_installation.others", terms)
        missing = sorted(set(CHORES) - {row["name"] for row in chores})
        return [
            *_of_locks(locks, terms.shard_count),
            *(Finding(Fault.CHORE, None, name, None, "no row") for name in missing),
            *(Finding(Fault(row["fault"]), None, row["subject"], None, row["seen"]) for row in others),
        ]

    @transition
    def find_in_slice(self, shard: int, terms: FsckTerms, *, first: FsckPosition, size: int) -> Conversation[Slice]:
        return (yield from self._slice(shard, terms, first, AFTER_ALL, size))

    @transition
    def find_again(self, shard: int, terms: FsckTerms, action_id: str) -> Conversation[Sequence[Finding]]:
        findings: list[Finding] = []
        following: FsckPosition | None = FsckPosition(action_id)
        while following is not None:
            part = yield from self._slice(shard, terms, following, action_id, 1)
            findings += part.findings
            following = part.following
        return findings

    def _slice(self, shard: int, terms: FsckTerms, first: FsckPosition, last_id: str, size: int) -> Conversation[Slice]:
        """Faults of the next actions up to an id, and of all rows among them."""
        span: dict[str, object] = {"shard_id": shard, "first": first.action_id, "last": last_id}
        rows = yield self._ask_about("find_in_slice.actions", terms, **span, size=size)
        ids = [row["action_id"] for row in rows]
        last = ids[-1] if len(ids) == size else last_id
        findings, end = yield from self._found(shard, terms, ids, first, last)
        actions = sum(first <= FsckPosition(action_id) < end for action_id in ids)
        return Slice(findings, actions, None if end.action_id > last_id else end)

    def _found(
        self, shard: int, terms: FsckTerms, ids: Sequence[str], first: FsckPosition, last: str
    ) -> Conversation[tuple[list[Finding], FsckPosition]]:
        """Faults of these actions and of all rows up to an id, and before what they were looked for."""
        misplaced = {one for one in ids if shard_of(one, terms.shard_count) != shard}
        findings = [_misplaced(one, terms.shard_count, shard) for one in sorted(misplaced)]
        end = _after(last)
        span: dict[str, object] = {
            "shard_id": shard,
            "first": first.action_id,
            "from_guid": first.from_guid,
            "last": last,
        }
        for part in ("versions", "rows", "history"):
            rows = yield self._ask_about(f"find_in_slice.{part}", terms, **span)
            told = [_finding_of(row, shard, terms) for row in rows]
            # One that is in another shard is brought there with all that it has: nothing else is to be mended of it.
            findings += [finding for finding in told if finding.subject not in misplaced]
            if len(told) >= terms.limit:
                end = min(end, _end_of([_position_of(finding) for finding in told]))
        return [finding for finding in findings if first <= _position_of(finding) < end], end

    @transition
    def mend(self, findings: Sequence[Finding], terms: FsckTerms) -> Conversation[list[Finding]]:
        fault, shard = findings[0].fault, findings[0].shard
        if fault is Fault.MISPLACED:
            return (yield from self._bring_home(findings, terms))
        mended: set[tuple[str, str | None]] = set()
        for part in self._parts(fault):
            rows = yield self._ask_about(
                f"mend.{part}", terms, **self._keys(findings), shard_id=shard, fresh_guid=_guid_of_lock(shard or 0)
            )
            mended |= {(row["subject"], row["guid"]) for row in rows}
        return [finding for finding in findings if (finding.subject, finding.guid) in mended]

    def _bring_home(self, findings: Sequence[Finding], terms: FsckTerms) -> Conversation[list[Finding]]:
        """If an action of its id is there, the one of them goes that was not changed last."""
        mended = []
        for finding in findings:
            wrong, right = finding.shard, shard_of(finding.subject, terms.shard_count)
            here: dict[str, object] = {"shard_id": wrong, "subject": finding.subject}
            there: dict[str, object] = {"shard_id": right, "subject": finding.subject}
            is_superseded = yield from self._whole(self._dropping, terms, here, other_shard=right, is_astray=True)
            if not is_superseded:
                yield from self._whole(self._dropping, terms, there, other_shard=wrong, is_astray=False)
                is_moved = yield from self._whole(self._parts(Fault.MISPLACED), terms, here, right_shard=right)
                if not is_moved:
                    continue
            mended.append(finding)
        return mended

    def _whole(
        self, parts: Sequence[str], terms: FsckTerms, where: Mapping[str, object], **how: object
    ) -> Conversation[bool]:
        """All of the statements, if the first one did anything."""
        for number, part in enumerate(parts):
            rows = yield self._ask_about(f"mend.{part}", terms, **where, **how)
            if number == 0 and not rows:
                return False
        return True


def _of_locks(locks: Sequence[Row], shard_count: int) -> Iterator[Finding]:
    there = {row["shard_id"] for row in locks}
    for shard in range(shard_count):
        if shard not in there:
            yield Finding(Fault.NO_LOCK, shard, str(shard), None, "no row")
    for row in locks:
        shard, guid, seen = row["shard_id"], row["guid"], f"last held by {row['holder'] or 'nobody'}"
        if not 0 <= shard < shard_count:
            yield Finding(Fault.EXTRA_LOCK, shard, str(shard), guid, seen)
        elif row["is_ahead"]:
            yield Finding(Fault.LOCK_TIME, shard, str(shard), guid, seen)


def _guid_of_lock(shard: int) -> UUID:
    """Nobody holds it, so any will do that no other lock has."""
    return UUID(int=shard)


def _misplaced(action_id: str, shard_count: int, shard: int) -> Finding:
    return Finding(Fault.MISPLACED, shard, action_id, None, f"it belongs into shard {shard_of(action_id, shard_count)}")


def _finding_of(row: Row, shard: int, terms: FsckTerms) -> Finding:
    fault = Fault(row["fault"])
    if fault is Fault.ORPHAN and not 0 <= shard < terms.shard_count:
        fault = Fault.STRAY  # no worker ever comes by
    return Finding(fault, shard, row["subject"], row["guid"], row["seen"])


def _position_of(finding: Finding) -> FsckPosition:
    return FsckPosition(finding.subject, finding.guid or "")


def _end_of(told: Sequence[FsckPosition]) -> FsckPosition:
    """How far faults are told of, if there may be more. Of the last version perhaps not all are: its turn is next time,
    unless there is no other. Several of one kind are mended as one."""
    last = max(told)
    if min(told) < last:
        return last
    following = last.from_guid.int + bool(last.guid)
    return FsckPosition(last.action_id, str(UUID(int=following))) if following < 2**128 else _after(last.action_id)


def _after(action_id: str) -> FsckPosition:
    """The least that comes after an id, for no id has control characters in it."""
    return FsckPosition(f"{action_id}\x01")
