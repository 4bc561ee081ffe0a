"""Whether all is well with the fleet, in one sentence: for whoever was woken and has ten seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

from matrixsched.ops.fleet import LATELY, Overview
from matrixsched.ops.render import age
from matrixsched.rules.gates import Gate

LATE_AFTER = timedelta(seconds=10)
VERY_LATE_AFTER = timedelta(minutes=1)
JUDGED_FROM = 20
"""Of fewer attempts nobody says that many of them go wrong."""
WRONG_SHARE = 0.05
MOSTLY_WRONG_SHARE = 0.5


class Level(IntEnum):
    OK = 0
    ATTENTION = 1
    TROUBLE = 2

    @property
    def title(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    text: str
    place: str
    """The page that tells more: overview, actions, shards, templates, limits."""


@dataclass(frozen=True, slots=True)
class Verdict:
    level: Level
    text: str
    findings: Sequence[Finding]
    """The worst first."""

    @property
    def places(self) -> list[str]:
        """Where to look, each once."""
        return list(dict.fromkeys(finding.place for finding in self.findings))

    @property
    def others(self) -> list[Finding]:
        """Those that the sentence does not tell."""
        return [finding for finding in self.findings if finding.level is not self.level]


def judge(seen: Overview) -> Verdict:
    findings = sorted(_findings(seen), key=lambda finding: -finding.level)
    if not findings:
        return Verdict(Level.OK, f"All is well: nothing is late, {_workers(seen)}.", ())
    worst = findings[0]
    heading = "Trouble" if worst.level is Level.TROUBLE else "Look at this"
    said = "; ".join(finding.text for finding in findings if finding.level is worst.level)
    return Verdict(worst.level, f"{heading}: {said}.", findings)


def _findings(seen: Overview) -> Iterator[Finding]:
    yield from _workers_missing(seen)
    yield from _late(seen)
    yield from _parked(seen)
    yield from _wrong(seen)
    yield from _shut(seen)


def _workers_missing(seen: Overview) -> Iterator[Finding]:
    if any(worker.runs_actions for worker in seen.workers):
        return
    if seen.workers:
        if seen.due.value:
            text = f"no worker that runs actions has reported, only of queues, and {seen.due} are due"
            yield Finding(Level.TROUBLE, text, "shards")
    elif seen.due.value:
        yield Finding(Level.TROUBLE, f"no worker has reported, and {seen.due} are due", "shards")
    else:
        yield Finding(Level.ATTENTION, "no worker has reported lately", "shards")


def _late(seen: Overview) -> Iterator[Finding]:
    """What a gate holds back is late on purpose. How many are due, and how many are held, says nothing of the others:
    both are counted up to a bound."""
    waited = max([seen.since(seen.oldest_open_at), *(seen.since(one.oldest_due_at) for one in seen.parked_for_workers)])
    if waited > LATE_AFTER:
        yield Finding(_level(waited), f"the oldest that no gate holds has waited for {age(waited)}", "shards")


def _parked(seen: Overview) -> Iterator[Finding]:
    """What waits for a handler that no worker has, until somebody starts one that has it."""
    late = [one for one in seen.parked_for_nobody if seen.since(one.oldest_due_at) > LATE_AFTER]
    if not late:
        return
    waited = seen.since(min(one.oldest_due_at for one in late))
    names = _names({one.handler for one in late})
    yield Finding(_level(waited), f"no worker has the handler of what has waited for {age(waited)}: {names}", "shards")


def _level(waited: timedelta) -> Level:
    return Level.TROUBLE if waited > VERY_LATE_AFTER else Level.ATTENTION


def _wrong(seen: Overview) -> Iterator[Finding]:
    attempts = sum(minute.attempts for minute in seen.minutes[-LATELY:])
    if attempts < JUDGED_FROM or seen.went_wrong < attempts * WRONG_SHARE:
        return
    level = Level.TROUBLE if seen.went_wrong >= attempts * MOSTLY_WRONG_SHARE else Level.ATTENTION
    share = f"{seen.went_wrong / attempts:.0%}"
    yield Finding(level, f"{share} of the attempts of the last {LATELY} minutes went wrong", "actions")


def _shut(seen: Overview) -> Iterator[Finding]:
    """What somebody has to open, or told to go slower."""
    orphans = sum(count for (gate, _), count in seen.gates.held.items() if gate is Gate.NO_TEMPLATE)
    if orphans:
        yield Finding(Level.ATTENTION, f"{orphans:,} wait for a template that is not there", "templates")
    if seen.gates.slowed:
        yield Finding(Level.ATTENTION, f"told to slow down: {_names(seen.gates.slowed)}", "limits")
    paused = {template for (gate, template), count in seen.gates.held.items() if gate is Gate.PAUSED and count}
    if paused:
        yield Finding(Level.ATTENTION, f"paused while messages are due: {_names(paused)}", "templates")


NAMED_MAX = 3


def _names(names: frozenset[str] | set[str | None]) -> str:
    shown = sorted(str(name) for name in names)
    more = f" and {len(shown) - NAMED_MAX} more" if len(shown) > NAMED_MAX else ""
    return ", ".join(shown[:NAMED_MAX]) + more


def _workers(seen: Overview) -> str:
    return f"{len(seen.workers)} worker{'' if len(seen.workers) == 1 else 's'}"
