"""One input on both sides: what must hold of the two verdicts.

A call is refused with an error of `matrixsched.errors`, or with a TypeError where its arguments do not fit its
signature, as Python itself says it; anything else is unhandled, and so is an error of the database: nobody had looked
at what was given. What is refused has written nothing, shows nothing of a payload and says what to do. Both sides say
the same and write the same rows.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from fuzz.inputs import MAKERS, SECRET, Input, Made
from fuzz.sides import PLAIN, Side, Sides
from fuzz.surfaces import SURFACES
from fuzz.tables import Contents
from fuzz.verdicts import Found, Signature, Tally, Verdict, Violation, difference, plain
from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput, DatabaseError, MatrixSchedError
from matrixsched.queues.ledger import SyncBatchStorage
from matrixsched.semaphores import TaskSemaphore


class Judge:
    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        self.tallies: dict[str, Tally] = {}
        self.known: set[Signature] = set()
        """Found before, counted and passed over."""

    def play(self, inputs: Sequence[Input]) -> None:
        """A sequence from the beginning; the first violation that is not known ends it."""
        self.sides.portal.call(self._play, inputs)

    async def _play(self, inputs: Sequence[Input]) -> None:
        await self.sides.restore()
        before = await self.sides.contents()
        for place, given in enumerate(inputs):
            if given.surface == "pass":
                self.sides.clock.advance(timedelta(seconds=given.args[0]))
                continue
            verdicts = [await verdict_of(side, given) for side in self.sides.both]
            after = await self.sides.contents()
            violations = self._violations(given, verdicts, before, after)
            self.tallies.setdefault(given.surface, Tally()).count(verdicts[0], violations)
            before = after
            for violation in violations:
                if violation.signature not in self.known:
                    raise Found(violation, inputs[: place + 1], "judge")
            if violations:
                return  # what comes after something known may only follow from it

    def _violations(
        self, given: Input, verdicts: Sequence[Verdict], before: Sequence[Contents], after: Sequence[Contents]
    ) -> list[Violation]:
        violations = []
        for side, verdict, were, are in zip(self.sides.both, verdicts, before, after, strict=True):
            violations += judged(given, side.name, verdict, [name for name in are if were[name] != are[name]])
        one, other = verdicts
        if one != other:
            violations.append(Violation("differs", given.surface, difference(one, other), _about(one, other)))
        for name in after[0]:
            if after[0][name] != after[1][name]:
                facts = f"{name}: {difference(after[0][name], after[1][name])}"
                violations.append(Violation("wrote other rows", given.surface, facts, name))
        return violations


async def verdict_of(side: Side, given: Input) -> Verdict:
    try:
        answer = await side.carry_out(given)
    except DatabaseError as error:
        return Verdict("unhandled", (type(error).__name__, str(error)), error)
    except MatrixSchedError as error:
        return Verdict("refused", (type(error).__name__, _ADDRESS.sub("0x…", str(error))), error)
    except TypeError as error:
        kind = "unhandled" if fits_signature(given) else "refused"
        return Verdict(kind, ("TypeError", str(error)), error)
    except Exception as error:
        return Verdict("unhandled", (type(error).__name__, str(error)), error)
    return Verdict("accepted", plain(answer))


def judged(given: Input, side: str, verdict: Verdict, written: Sequence[str]) -> list[Violation]:
    """What is wrong with a verdict alone."""
    found: list[Violation] = []

    def add(rule: str, facts: str, about: str = "") -> None:
        found.append(Violation(rule, given.surface, f"on {side}: {facts}", about))

    if verdict.kind == "unhandled":
        add("unhandled", str(verdict), verdict.what[0])
    if verdict.kind != "accepted" and set(written) - _may_be_noted(verdict):
        add("wrote although refused", f"{', '.join(written)}; {verdict}")
    if written and SURFACES[given.surface].reads:
        add("wrote although it only reads", ", ".join(written))
    if isinstance(verdict.error, MatrixSchedError):
        if SECRET in "".join(traceback.format_exception(verdict.error)) or SECRET in repr(verdict.error):
            add("shows the payload", str(verdict), verdict.what[0])
        if verdict.error.remedy not in str(verdict.error):
            add("says no remedy", str(verdict), verdict.what[0])
    return found


def _may_be_noted(verdict: Verdict) -> set[str]:
    """A request that found nothing to do, or found it otherwise than expected, is noted: a late twin of it shall not
    take effect later. One that was bad input leaves no trace at all."""
    return set() if isinstance(verdict.error, BadInput) else {"requests"}


def _about(one: Verdict, other: Verdict) -> str:
    if "accepted" in (one.kind, other.kind):
        return f"{one.kind} {other.kind}"
    return f"{one.what[0]} {other.what[0]}"


# Whether Python itself takes the arguments.


def fits_signature(given: Input) -> bool:
    owner, _, method = given.surface.rpartition(".")
    owners = _SYNC_OWNERS if given.door == "sync" else _OWNERS
    target = _SIGNATURES.get(given.surface) or getattr(owners[owner], method)
    args = given.args[1:] if owner == "semaphore" else given.args
    return _fits(target, args, given.options) and not any(map(_is_misfit, (*given.args, *given.options.values())))


def _is_misfit(value: Any) -> bool:
    """Whether something of ours is to be made from arguments that do not fit it, or holds such a thing."""
    if isinstance(value, list | tuple):
        return any(map(_is_misfit, value))
    if not isinstance(value, Made):
        return False
    return not _fits(MAKERS.get(value.what), value.args, value.options) or any(
        map(_is_misfit, (*value.args, *value.options.values()))
    )


def _fits(target: Any, args: Sequence[Any], options: dict[str, Any]) -> bool:
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # no function, or one of Python's own that has none
        return True
    try:
        signature.bind(*args, **options)
    except TypeError:
        return False
    return True


_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_APP = App("sqlite://", clock=ManualClock())
_OWNERS: dict[str, Any] = {
    "": _APP,
    "limits": _APP.limits,
    "templates": _APP.templates,
    "quota": _APP.quota,
    "semaphores": _APP.semaphores,
    "semaphore": TaskSemaphore(_APP.semaphores, "pool"),
    "queues": _APP.queues,
    "storage": _APP.queues.storage_over(_APP.store),
}
_SYNC_OWNERS = {**_OWNERS, "storage": SyncBatchStorage(_OWNERS["storage"])}
_SIGNATURES: dict[str, Any] = {"App": App, **{made.__name__: made for made in PLAIN}}
