"""What must hold of limits, semaphores, queues and of the fleet itself, whatever went wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from support.pacing import starts_too_many

from chaos.checkers import Objections
from chaos.facts import Claim, Facts, first_after
from chaos.setting import PLACES, RATE, RATE_POOL
from matrixsched.rules.rates import parse_rate

PROGRESS_S = 5.0
RECOVERY_GRACE_S = 1.0
LEAK_MAX = 20
"""Of open files: the pools of a worker may have no connection in the beginning, and all of theirs at the end."""
WARM_UP_S = 10.0
"""Until then a worker opens what it needs."""
NOTED_S = 0.25
"""So long it may take from the decision to call a handler to its first note, on a machine that has much to do."""
AT_WORK_MIN = 3
"""With fewer workers there may be no room for what comes back."""
SETTLED_S = 1.0
"""So long a statement that settles tasks may wait for somebody who prolongs them."""


def too_fast(facts: Facts) -> Objections:
    """Actions of one limit are never started faster than it allows, in whatever stretch of time."""
    starts = [run.begun for run in facts.runs if run.id.startswith("r-")]
    too_many = starts_too_many(starts, parse_rate(RATE), RATE_POOL)
    if too_many > 0:
        yield f"{too_many:.1f} starts more than {RATE} allows"


def overfull(facts: Facts) -> Objections:
    """A semaphore never has more holders than places, in any snapshot."""
    for snapshot in facts.snapshots:
        if snapshot.held > PLACES:
            yield f"{snapshot.held} held one of {PLACES} places at {snapshot.at:.3f}"


def untold(facts: Facts) -> Objections:
    """Every task whose enqueueing was acknowledged is told of its place, and nobody of one that nobody enqueued."""
    told = {one.task for one in facts.told}
    called = {id for one in facts.operations if one.what == "enqueue" for id in one.ids}
    for operation in facts.operations:
        if operation.what == "enqueue" and operation.reply == "ok" and not told.issuperset(operation.ids):
            yield f"{operation.ids[0]} was never told of its place"
    for task in told - called:
        yield f"{task} was told of a place that nobody asked for"


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
        if (change.was_due or 0.0) < change.at - SETTLED_S or (
            change.writer is not None and taker is not None and change.writer != taker.writer
        ):
            yield f"task {change.id} was settled by {change.writer} under a receipt that was not its own or void"


# Recovery.


@dataclass(frozen=True)
class Times:
    """Some times, and how many others do not count because another fault came between."""

    clean: list[float]
    hit_again: int

    def at(self, share: float) -> float:
        ordered = sorted(self.clean)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def __str__(self) -> str:
        if not self.clean:
            return "nothing to measure"
        return (
            f"p50 {self.at(0.5):.2f} s, p99 {self.at(0.99):.2f} s, most {max(self.clean):.2f} s of {len(self.clean):,} "
            f"({self.hit_again:,} more were hit by another fault meanwhile)"
        )


def recovery_times(facts: Facts) -> Times:
    """From a kill to the next start of each action that the worker had in its hands; but of those under a limit, which
    have to wait for their turn once more."""
    kills = {fault.writer: fault.begins for fault in facts.faults if fault.kind == "kill"}
    clean, hit_again = [], 0
    for claim in facts.claims:
        killed_at = kills.get(claim.writer)
        if killed_at is None or not claim.taken_over or claim.at > killed_at or claim.id.startswith("r-"):
            continue
        began = [run for run in facts.runs_of.get(claim.id, []) if run.begun > killed_at and run.guid == claim.guid]
        if not began:
            continue  # it was replaced or cancelled meanwhile
        if _is_hit_again(facts, claim, killed_at, began[0].begun):
            hit_again += 1
        else:
            clean.append(began[0].begun - killed_at)
    return Times(clean, hit_again)


def _is_hit_again(facts: Facts, claim: Claim, since: float, until: float) -> bool:
    """Whether the database was away meanwhile, a fault hit whoever claimed it next or held its shard, or too few were
    left at work; or it had been interrupted before, which makes it a suspect, and those go one by one."""
    if any(fault.begins <= until and fault.ends >= claim.at for fault in facts.faults if fault.writer is None):
        return True
    siblings = facts.claims_of[claim.guid]
    later = [one for one in siblings if claim.at < one.at <= until]
    return (
        len(later) > 1
        or any(one.taken_over for one in siblings if one.at < claim.at)
        or any(facts.fault_between(one.writer, one.at, until) is not None for one in later)
        or facts.is_shard_kept(claim, since, until)
        or any(facts.at_work(since + tenth / 10) < AT_WORK_MIN for tenth in range(1, int((until - since) * 10) + 1))
    )


def slow_recovery(facts: Facts) -> Objections:
    """What a killed worker had in its hands is started again within an attempt's lease and a second (p99)."""
    times = recovery_times(facts)
    if times.clean and times.at(0.99) > facts.lease_s + RECOVERY_GRACE_S + facts.patience_s:
        yield f"{times}"


def progress_times(facts: Facts) -> Times:
    """From the moment at which PostgreSQL accepts again to the next claim."""
    claimed = sorted(claim.at for claim in facts.claims)
    outages = sorted((fault.begins, fault.ends) for fault in facts.faults if fault.kind == "restart")
    clean, hit_again = [], 0
    for number, (_, ends) in enumerate(outages):
        first = first_after(claimed, ends)
        next_begins = outages[number + 1][0] if number + 1 < len(outages) else float("inf")
        if first is None or (first > next_begins and next_begins - ends < PROGRESS_S):
            hit_again += 1
        else:
            clean.append(first - ends)
    return Times(clean, hit_again)


def slow_progress(facts: Facts) -> Objections:
    """After a restart of PostgreSQL the next attempt is claimed within five seconds."""
    times = progress_times(facts)
    if times.clean and max(times.clean) > PROGRESS_S + facts.patience_s:
        yield f"{times}"


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
    overfull,
    untold,
    undelivered,
    delivered_twice,
    begun_too_late,
    settled_by_others,
    slow_recovery,
    slow_progress,
    leaking,
    ended,
    complaining,
    corrupt,
)
