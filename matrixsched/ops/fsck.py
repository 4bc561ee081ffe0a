"""Checking the invariants of an installation while everything runs, and mending what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

from matrixsched.app import App
from matrixsched.errors import DatabaseBusy, DatabaseError
from matrixsched.rules.faults import MEANINGS, Fault, Finding
from matrixsched.rules.queues import VISIBILITY_MAX
from matrixsched.store.fsck import FsckPosition, FsckTerms
from matrixsched.worker.policy import ATTEMPT_LEASE_MAX

SLICE = 20_000
"""How many actions are looked at together: it bounds the time of a statement, and what a finding costs in memory."""
FINDINGS_MAX = 2_000
"""How many faults of a slice are told at a time."""
MENDED_AT_ONCE = 200
"""Small, so that nobody waits for it."""
KEPT = 100
"""How many findings a report names unless told otherwise; the others are counted."""

Progress = Callable[[int], object]


class Outcome(StrEnum):
    """What became of a finding when it was to be mended."""

    MENDED = "mended"
    GONE = "gone"
    """It was not there any more."""
    LEFT = "left"
    """It is still there: in somebody's hands, or somebody has to decide."""


@dataclass(frozen=True, slots=True)
class Mended:
    finding: Finding
    outcome: Outcome


class Verdict(StrEnum):
    CLEAN = "clean"
    MENDED = "mended"
    BROKEN = "broken"


def is_litter(fault: Fault) -> bool:
    return MEANINGS[fault].is_litter


@dataclass(slots=True)
class Report:
    """What was found, and what became of it; the first of it by name, damage before litter."""

    keep: int = KEPT
    actions: int = 0
    found: Counter[Fault] = field(default_factory=Counter)
    outcomes: Counter[tuple[Fault, Outcome]] = field(default_factory=Counter)
    """Of those that were to be mended."""
    _damage: list[tuple[Finding, Outcome | None]] = field(default_factory=list)
    _litter: list[tuple[Finding, Outcome | None]] = field(default_factory=list)

    def add(self, finding: Finding, outcome: Outcome | None = None) -> None:
        self.found[finding.fault] += 1
        if outcome is not None:
            self.outcomes[finding.fault, outcome] += 1
        kept = self._litter if is_litter(finding.fault) else self._damage
        if len(kept) < self.keep:
            kept.append((finding, outcome))

    @property
    def named(self) -> list[tuple[Finding, Outcome | None]]:
        return [*self._damage, *self._litter][: self.keep]

    @property
    def damage(self) -> int:
        return sum(number for fault, number in self.found.items() if not is_litter(fault))

    @property
    def litter(self) -> int:
        return self.found.total() - self.damage

    def ended(self, outcome: Outcome, *, litter: bool = False) -> int:
        """Faults with this outcome; of damage, or of litter."""
        return sum(
            number for (fault, one), number in self.outcomes.items() if one is outcome and is_litter(fault) is litter
        )


@dataclass(frozen=True, slots=True)
class Page:
    """What one look found."""

    findings: Sequence[Finding]
    actions: int
    shards_done: int


async def checked(app: App, *, keep: int = KEPT, progress: Progress | None = None) -> Report:
    """Look for every fault; `progress` is told how many shards are done."""
    report = Report(keep)
    async with app:
        async for page in found(app, progress=progress):
            report.actions += page.actions
            for finding in page.findings:
                report.add(finding)
    return report


async def repaired(
    app: App, *, keep: int = KEPT, progress: Progress | None = None, note: Progress | None = None
) -> Report:
    """Look for every fault and mend it where it is found; `note` is told how many are mended so far."""
    report = Report(keep)
    async with app:
        async for page in found(app, progress=progress):
            report.actions += page.actions
            for one in await mended(app, page.findings):
                report.add(one.finding, one.outcome)
            if note is not None:
                note(sum(report.ended(Outcome.MENDED, litter=litter) for litter in (False, True)))
    return report


async def found(app: App, *, progress: Progress | None = None) -> AsyncIterator[Page]:
    """Faults page by page, as they are found; the app is open."""
    terms, run, do = await _terms(app), app.store.run, app.store.transitions
    yield Page(await run(do.find_in_installation(terms)), 0, 0)
    shards = [*range(terms.shard_count), *await run(do.find_stray_shards(terms))]
    for done, shard in enumerate(shards, start=1):
        following: FsckPosition | None = FsckPosition()
        while following is not None:
            part = await run(do.find_in_slice(shard, terms, first=following, size=SLICE))
            following = part.following
            yield Page(part.findings, part.actions, done)
        if progress is not None:
            progress(done)


async def mended(app: App, findings: Sequence[Finding]) -> list[Mended]:
    """Mend what was found, if it is still there, and say of each what became of it; the app is open."""
    if not findings:
        return []
    terms = await _terms(app)
    outcomes: dict[Finding, Outcome] = {}
    for batch in _batches(findings):
        outcomes |= dict.fromkeys(await _mended(app, batch, terms), Outcome.MENDED)
    rest = [finding for finding in findings if finding not in outcomes]
    still_there = await _still_there(app, rest, terms)
    outcomes |= {finding: Outcome.LEFT if finding.key in still_there else Outcome.GONE for finding in rest}
    return [Mended(finding, outcomes[finding]) for finding in findings]


def _batches(findings: Sequence[Finding]) -> Iterator[list[Finding]]:
    """Those of a kind and a shard together, a few at a time; in the order in which kinds are named, for some mends make
    others needless."""
    order = list(Fault)
    can_be = [finding for finding in findings if MEANINGS[finding.fault].mend is not None]
    together = sorted(can_be, key=lambda finding: (order.index(finding.fault), finding.shard or 0))
    for (fault, _), group in groupby(together, key=lambda finding: (finding.fault, finding.shard)):
        alike = list(group)
        # An action that is brought home may have to be waited for, and nothing else with it.
        size = 1 if fault is Fault.MISPLACED else MENDED_AT_ONCE
        yield from (alike[begin : begin + size] for begin in range(0, len(alike), size))


async def _mended(app: App, batch: Sequence[Finding], terms: FsckTerms) -> list[Finding]:
    try:
        return await app.store.run(app.store.transitions.mend(batch, terms))
    except DatabaseBusy:
        return []
    except DatabaseError:
        # Somebody schedules the action at its right place at this very moment: then it is left to be decided.
        if batch[0].fault is not Fault.MISPLACED:
            raise
        return []


async def _still_there(app: App, findings: Sequence[Finding], terms: FsckTerms) -> set[object]:
    """The keys of those that are found again."""
    if not findings:
        return set()
    run, do = app.store.run, app.store.transitions
    again: set[object] = set()
    if any(map(_is_of_no_action, findings)):
        in_installation = await run(do.find_in_installation(terms))
        again |= {finding.key for finding in in_installation}
    for shard, subject in {(one.shard, one.subject) for one in findings if not _is_of_no_action(one)}:
        assert shard is not None
        of_action = await run(do.find_again(shard, terms, subject))
        again |= {finding.key for finding in of_action}
    return again


def _is_of_no_action(finding: Finding) -> bool:
    return finding.shard is None or finding.fault in (Fault.NO_LOCK, Fault.EXTRA_LOCK, Fault.LOCK_TIME)


async def _terms(app: App) -> FsckTerms:
    installation = await app.store.run(app.store.transitions.installation())
    return FsckTerms(
        shard_count=installation.shard_count,
        attempt_lease_max=ATTEMPT_LEASE_MAX,
        visibility_max=VISIBILITY_MAX,
        limit=FINDINGS_MAX,
    )


def verdict(report: Report, left: Report | None) -> Verdict:
    """Litter is no damage. `left` is what was found after a repair."""
    if (report if left is None else left).damage:
        return Verdict.BROKEN
    return Verdict.MENDED if report.ended(Outcome.MENDED) else Verdict.CLEAN


def sections(
    report: Report, left: Report | None
) -> Mapping[str, Mapping[str, object] | Sequence[Mapping[str, object]]]:
    """The report as facts and tables."""
    return {
        "verdict": {
            "verdict": verdict(report, left).value,
            "actions": report.actions,
            "damage": report.damage,
            "litter": report.litter,
            "damage_left": (left or report).damage,
        },
        "kinds": [_kind_row(fault, report) for fault in Fault if report.found[fault]],
        "findings": [_finding_row(finding, outcome) for finding, outcome in report.named],
    }


def _kind_row(fault: Fault, report: Report) -> Mapping[str, object]:
    meaning = MEANINGS[fault]
    return {
        "kind": fault.value,
        "is": "litter" if meaning.is_litter else "damage",
        "found": report.found[fault],
        **{outcome.value: report.outcomes[fault, outcome] for outcome in Outcome},
        "what": meaning.what,
        "repair": meaning.mend,
    }


def _finding_row(finding: Finding, outcome: Outcome | None) -> Mapping[str, object]:
    return {
        "kind": finding.fault.value,
        "shard": finding.shard,
        "id": finding.subject,
        "guid": finding.guid,
        "seen": finding.seen,
        "outcome": None if outcome is None else outcome.value,
    }
