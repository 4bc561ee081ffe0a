"""What must hold of limits, semaphores, queues and of the fleet itself, whatever went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import median

from support.pacing import starts_too_many

from chaos.checkers import Objections
from chaos.facts import Facts
from chaos.recovery_checkers import missed_ticks, slow_progress, slow_recovery
from chaos.semaphore_checkers import overfull, overtaken, untold
from chaos.setting import GATED, RATE, RATE_POOL
from matrixsched.rules.rates import parse_rate

SCHEDULING = ("schedule", "schedule_many", "replace")
LEAST_SHARE = 0.5
"""Some are cancelled before their time comes."""
LEAK_MAX = 20
"""Of open files: the pools of a worker may have no connection in the beginning, and all of theirs at the end."""
WARM_UP_S = 10.0
"""Until then a worker opens what it needs."""
NOTED_S = 0.25
"""So long it may take from the decision to call a handler to its first note, on a machine that has much to do."""
SETTLED_S = 1.0
"""So long a statement that settles tasks may wait for somebody who prolongs them."""


def too_fast(facts: Facts) -> Objections:
    """Actions of one limit are never started faster than it allows, in whatever stretch of time."""
    for prefix in GATED:
        starts = [run.begun for run in facts.runs if run.id.startswith(prefix)]
        too_many = starts_too_many(starts, parse_rate(RATE), RATE_POOL)
        if too_many > 0:
            yield f"{too_many:.1f} starts of {prefix}… more than {RATE} allows"


def misspent(facts: Facts) -> Objections:
    """Of a template's quota whoever claims its actions spends as much as it claims, and never more than is granted."""
    claimed, spent = Counter[tuple[str, str | None]](), Counter[tuple[str, str | None]]()
    for change in facts.changes:
        if change.place == "row" and change.claim not in (None, change.was_claim):
            lane = (change.was_state or "").split("|")
            if lane[0] == "quota":
                claimed[lane[1], change.writer] += 1
        elif change.place == "grant" and change.op == "U":
            spent[change.id, change.writer] += (change.attempt or 0) - (change.was_attempt or 0)
            if (change.attempt or 0) > int(change.note or 0):
                yield f"{change.writer} spent {change.attempt} of {change.note} of {change.id}"
    for template, writer in {*claimed, *spent}:
        if claimed[template, writer] != spent[template, writer]:
            yield f"{writer} claimed {claimed[template, writer]} of {template}, and spent {spent[template, writer]}"


def undelivered(facts: Facts) -> Objections:
    """Every task that was put is handled, and none that nobody put."""
    delivered = {parcel.token for parcel in facts.parcels if parcel.is_delivered}
    put = {id for one in facts.operations if one.what == "put" for id in one.ids}
    for operation in facts.operations:
        if operation.what == "put" and operation.reply == "ok":
            for token in operation.ids:
                if token not in delivered:
                    yield f"{token} of {operation.name} was never handled"
    for token in {parcel.token for parcel in facts.parcels} - put:
        yield f"{token} was handled, and nobody put it"


def handed_out_twice(facts: Facts) -> Objections:
    """A task is handed to a handler once under each receipt."""
    handed_out = Counter((parcel.token, parcel.receipt) for parcel in facts.parcels if not parcel.is_delivered)
    for (token, receipt), count in handed_out.items():
        if count > 1:
            yield f"{token} was handed out {count} times under the receipt {receipt}"


def delivered_twice(facts: Facts) -> Objections:
    """A task is handled once, and once more for each time that a fault hit the worker that had it."""
    takes = {take.name + take.guid: take for take in facts.takes}
    settled = {change.was_guid + change.id for change in facts.changes if change.op == "D" and change.was_guid}
    for parcel in facts.parcels:
        receipt = parcel.receipt + parcel.task
        if not parcel.is_delivered or receipt in settled:
            continue
        take = takes.get(receipt)
        since, until = (parcel.at, parcel.at) if take is None else (take.at, max(parcel.at, take.over_at or 0.0))
        if facts.fault_between(parcel.writer, since, until) is None:
            yield f"{parcel.token} was handled by {parcel.writer} at {parcel.at:.3f}, and again, without a fault"


def begun_too_late(facts: Facts) -> Objections:
    """No task is handed to a handler when the timeout is over for which it was taken."""
    takes = {take.name + take.guid: take for take in facts.takes}
    for parcel in facts.parcels:
        take = takes.get(parcel.receipt + parcel.task)
        if not parcel.is_delivered and take is not None and parcel.at > take.at + facts.lease_s + NOTED_S:
            yield f"{parcel.token} was begun by {parcel.writer} {parcel.at - take.at:.2f} s after it was taken"


def settled_by_others(facts: Facts) -> Objections:
    """A task that is taken is settled by whoever took it, before its time is over, or not at all."""
    takers = {take.name + take.guid: take for take in facts.takes}
    for change in facts.changes:
        if change.place != "task" or change.was_guid is None or change.guid == change.was_guid:
            continue
        is_over = (change.was_due or 0.0) <= change.at
        if change.guid is not None:
            if not is_over:
                yield f"task {change.id} was taken by {change.writer} while somebody else still had it"
            continue
        taker = takers.get(change.was_guid + change.id)
        # What was asked for in time may be noted a moment later.
        is_others = taker is not None and change.writer != taker.writer
        if is_others or (change.was_due or 0.0) < change.at - SETTLED_S:
            yield f"task {change.id} was settled by {change.writer} under a receipt that was not its own or void"


# Processes.


def leaking(facts: Facts) -> Objections:
    """Open files and threads of a worker that lives through everything do not grow."""
    for writer, all_samples in facts.samples.items():
        samples = [sample for sample in all_samples if sample.at >= all_samples[0].at + WARM_UP_S]
        third = len(samples) // 3
        if third < 5:
            continue
        for what in ("fds", "threads"):
            begin = median(getattr(sample, what) for sample in samples[third // 2 : third])
            end = median(getattr(sample, what) for sample in samples[-third:])
            if end > begin + LEAK_MAX:
                yield f"{writer} had {begin:g} {what}, and {end:g} at the end"


def idle(facts: Facts) -> Objections:
    """There is something to judge: facts of each kind, and runs and claims of most of what was acknowledged."""
    kinds = {
        "calls": facts.operations,
        "runs": facts.runs,
        "claims": facts.claims,
        "tasks that were taken": facts.takes,
        "tasks that were handled": facts.parcels,
        "places that were given": facts.places,
        "places that were told of": facts.told,
        "grants of a quota": [change for change in facts.changes if change.place == "grant"],
        "snapshots": facts.snapshots,
    }
    for what, found in kinds.items():
        if not found:
            yield f"there are no {what}"
    asked = {id for one in facts.operations if one.is_certain and one.what in SCHEDULING for id in one.ids}
    for what, ids in (("run", {run.id for run in facts.runs}), ("claimed", {claim.id for claim in facts.claims})):
        if len(asked & ids) < LEAST_SHARE * len(asked):
            yield f"of {len(asked):,} actions that were acknowledged {len(asked & ids):,} were {what}"


def ended(facts: Facts) -> Objections:
    """No worker ends by itself, and each ends well when it is asked to."""
    yield from facts.left_alone


def complaining(facts: Facts) -> Objections:
    """Nobody meets an error that we did not think of."""
    yield from facts.complaints


def corrupt(facts: Facts) -> Objections:
    """A SQLite file is sound after all of it."""
    if facts.integrity != "ok":
        yield facts.integrity


OF_THE_FLEET: tuple[Callable[[Facts], Objections], ...] = (
    too_fast,
    misspent,
    overfull,
    overtaken,
    untold,
    undelivered,
    handed_out_twice,
    delivered_twice,
    begun_too_late,
    settled_by_others,
    slow_recovery,
    slow_progress,
    missed_ticks,
    idle,
    leaking,
    ended,
    complaining,
    corrupt,
)
