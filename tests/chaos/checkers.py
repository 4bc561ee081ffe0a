"""What must hold of actions, whatever went wrong: each checker is one sentence and one function that objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from chaos.audit import Change
from chaos.facts import Claim, Facts, Operation, Run
from chaos.setting import SEMAPHORE, SHARDS
from matrixsched.rules.names import shard_of
from matrixsched.rules.semaphore import acquired_handler, try_release_handler

Objections = Iterator[str]
EARLY_S = 0.0005
"""Times in notes are floats."""
CLOCK_S = 0.002
"""SQLite tells the audit the time in milliseconds."""
EVENTS = (acquired_handler(SEMAPHORE), try_release_handler(SEMAPHORE))


def lost(facts: Facts) -> Objections:
    """Every version of an action that was acknowledged and never replaced or cancelled was run to its end."""
    done = {run.guid for run in facts.runs if run.ending == "done"}
    done_ids = {run.id for run in facts.runs if run.ending == "done"}
    for id, operations in facts.operations_of.items():
        if operations[0].what in ("put", "enqueue"):
            continue
        standing = standing_of(operations)
        if not standing or any(one.what == "cancel" for one in standing):
            continue
        if len(standing) > 1 or standing[0].guid is None:
            if id not in done_ids and not all(one.is_doubtful for one in standing):
                yield f"{id}: one of {[one.name for one in standing]} stands, and none was run"
        elif standing[0].guid not in done:
            yield f"{id} at {standing[0].guid}, acknowledged to {standing[0].name}, was not run to its end"


def standing_of(operations: list[Operation]) -> list[Operation]:
    """The operations of which one wrote the version that stands at the end."""
    standing: list[Operation] = []
    for one in operations:
        if one.is_certain:
            standing = [one]
        elif one.is_doubtful:
            standing.append(one)
    return standing


def unfinished(facts: Facts) -> Objections:
    """What was acknowledged and never replaced or cancelled is recorded as done."""
    for id, operations in facts.operations_of.items():
        standing = standing_of(operations)
        if len(standing) != 1 or not standing[0].is_certain or standing[0].what in ("put", "enqueue"):
            continue
        action = facts.actions.get(id)
        expected = "cancelled" if standing[0].what == "cancel" else "done"
        if action is None or action.state != expected or standing[0].guid not in (None, action.guid):
            yield f"{id} should be {expected} at {standing[0].guid}, and stands as {action}"


def unexpected(facts: Facts) -> Objections:
    """No handler is called for an action or a version that nobody asked for."""
    for run in facts.runs:
        if run.handler in EVENTS:
            continue
        operations = facts.operations_of.get(run.id, [])
        known = {one.guid for one in operations if one.reply == "ok"}
        if run.guid not in known and None not in known and not any(one.is_doubtful for one in operations):
            yield f"{_run(run)}, which nobody asked for"


def early(facts: Facts) -> Objections:
    """No handler is called before its time, by the database's clock and by what its client asked for."""
    for run in facts.runs:
        claim = facts.claim_of.get((run.guid, run.attempt))
        times = [run.due]
        if claim is not None and claim.due is not None:
            times.append(claim.due)
        operation = facts.asked_for(run)
        if operation is not None and operation.not_before is not None:
            times.append(operation.not_before)
        if run.begun < max(times) - EARLY_S:
            yield f"{_run(run)} began {max(times) - run.begun:.3f} s too early"


def superseded(facts: Facts) -> Objections:
    """No claim of a version begins after the answer that it was replaced, moved or cancelled."""
    for operations in facts.operations_of.values():
        replaced: list[Operation] = []
        for one in operations:
            if one.is_certain and one.replied is not None:
                for old in replaced:
                    for claim in facts.claims_of.get(old.guid or "", []):
                        late_s = claim.lease_ends - facts.lease_s - one.replied
                        if late_s > 0:
                            yield f"{_claim(claim)}, {late_s:.3f} s after the answer to {one.name} ({one.what})"
                replaced = [*replaced, one]


def doubled(facts: Facts) -> Objections:
    """A tick is run to its end once, and once more for each attempt that a fault hit."""
    done: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in sorted(facts.runs, key=lambda one: one.begun):
        if run.ending == "done":
            done[run.guid, run.tick].append(run)
    for runs in done.values():
        # The last one needs no excuse: it is the one that counts.
        for run in runs[:-1]:
            claim = facts.claim_of.get((run.guid, run.attempt))
            since = run.begun if claim is None else claim.at
            until = max(run.ended or run.begun, (claim and claim.over_at) or 0.0)
            if facts.fault_between(run.writer, since, until) is None:
                yield f"{_run(run)} ran to its end, and the same tick again, without a fault"


def abandoned(facts: Facts) -> Objections:
    """No attempt is taken over from a worker that no fault has hit."""
    for claim in facts.claims:
        if claim.taken_over and facts.fault_between(claim.writer, claim.at, claim.over_at or claim.at) is None:
            yield f"{_claim(claim)} was taken over after {(claim.over_at or 0) - claim.at:.2f} s without a fault"


def claimed_once(facts: Facts) -> Objections:
    """Attempts of a version are numbered without gaps, and each is one call of its handler."""
    for claims in facts.claims_of.values():
        if [claim.attempt for claim in claims] != list(range(1, len(claims) + 1)):
            yield f"{claims[0].id} at {claims[0].guid} has attempts {[claim.attempt for claim in claims]}"
    for (guid, attempt), count in Counter((run.guid, run.attempt) for run in facts.runs).items():
        if count > 1:
            yield f"attempt {attempt} at {guid} was begun {count} times"
    for run in facts.runs:
        claim = facts.claim_of.get((run.guid, run.attempt))
        if claim is None or claim.writer != run.writer:
            yield f"{_run(run)} was begun by somebody who had not claimed it"


def overlapping(facts: Facts) -> Objections:
    """Handlers of one action do not run at the same time, unless a fault hit the worker of the earlier one."""
    for runs in facts.runs_of.values():
        for earlier, later in zip(runs, runs[1:], strict=False):
            if (earlier.ended is None or earlier.ended > later.begun) and not facts.fault_between(
                earlier.writer, earlier.begun, later.begun
            ):
                yield f"{_run(later)} while {_run(earlier)} was running"


def claimed_without_shard(facts: Facts) -> Objections:
    """A row is claimed by whoever holds its shard at that moment, and under the guid of that lock."""
    held: dict[int, Change | None] = {}
    for change in facts.changes:
        if change.place == "lock":
            held[int(change.id)] = change if change.state == "locked" else None
        elif change.place == "row" and change.claim is not None and change.claim != change.was_claim:
            lock = held.get(shard_of(change.id, SHARDS))
            if lock is None or (lock.guid, lock.writer) != (change.claim, change.writer):
                holder = "nobody" if lock is None else f"{lock.writer} under {lock.guid}"
                yield f"{_change(change)} claimed under {change.claim}, while {holder} held the shard"


def fenced(facts: Facts) -> Objections:
    """A row that is claimed is written by whoever claimed it, or by others once its lease is over."""
    claimers: dict[str, str | None] = {}
    for change in facts.changes:
        if change.place != "row":
            continue
        if change.was_claim is not None and not _may_write(change, claimers.get(_key(change, change.was_claim))):
            yield f"{_change(change)} wrote over a claim that was not its own and still ran"
        if change.claim is not None and change.claim != change.was_claim:
            claimers[_key(change, change.claim)] = change.writer


def _key(change: Change, claim: str) -> str:
    return f"{change.guid or change.was_guid} {claim}"


def _may_write(change: Change, claimer: str | None) -> bool:
    if change.was_due is not None and change.was_due <= change.at + CLOCK_S:
        return True
    if change.claim is not None and change.claim != change.was_claim or change.interrupted > 0:
        return False  # a takeover, before the lease was over
    return change.writer == claimer


def recorded_by_others(facts: Facts) -> Objections:
    """A worker whose attempt was taken over does not write its outcome, nor anything else over its heir."""
    latest: dict[str, Claim] = {}
    claims = iter(facts.claims)
    upcoming = next(claims, None)
    for change in facts.changes:
        while upcoming is not None and upcoming.seq <= change.seq:
            latest[upcoming.guid] = upcoming
            upcoming = next(claims, None)
        if change.place != "action" or change.guid != change.was_guid or not (change.succeeded or change.failed):
            continue
        claim = latest.get(change.guid or "")
        if claim is None:
            yield f"{_change(change)} recorded an outcome of what was never claimed"
        elif change.writer != claim.writer:
            yield f"{_change(change)} recorded an outcome while {_claim(claim)}"


def made_up(facts: Facts) -> Objections:
    """A success is counted only for an attempt whose handler had returned, and once for each tick."""
    ended = {(run.guid, run.attempt): run for run in facts.runs if run.ending == "done"}
    ticks: set[tuple[str, int]] = set()
    claims_of = facts.claims_of
    for change in facts.changes:
        if change.place != "action" or change.guid != change.was_guid or change.succeeded <= 0:
            continue
        attempts = [claim.attempt for claim in claims_of.get(change.guid or "", []) if claim.seq < change.seq]
        run = ended.get((change.guid or "", attempts[-1])) if attempts else None
        if run is None or (run.ended or 0) > change.at + CLOCK_S:
            yield f"{_change(change)} succeeded without having been run"
        elif (run.guid, run.tick) in ticks:
            yield f"tick {run.tick} of {run.id} at {run.guid} succeeded twice"
        else:
            ticks.add((run.guid, run.tick))


def counted(facts: Facts) -> Objections:
    """The counters of an action are what was remembered of its attempts, and what it was asked to do."""
    history: dict[str, Counter[str]] = defaultdict(Counter)
    for row in facts.history:
        history[row.guid][row.outcome] += 1
    takeovers = Counter(
        change.guid for change in facts.changes if change.place == "row" and change.op == "U" and change.interrupted > 0
    )
    for id, operations in facts.operations_of.items():
        (*_, last) = operations
        action = facts.actions.get(id)
        if not last.is_certain or last.what not in ("schedule", "replace") or action is None or last.handler == "tick":
            continue
        remembered = history[action.guid]
        failures = last.payload if last.handler == "flaky" else 0
        expected = (1, failures, takeovers[action.guid])
        found = (action.succeeded, action.failed, action.interrupted)
        if found != expected or (remembered["failed"], remembered["interrupted"]) != expected[1:]:
            yield (
                f"{id} at {action.guid} counts {found}, should be {expected} (succeeded, failed, interrupted); "
                f"remembered: {dict(remembered)}"
            )


def one_live_row(facts: Facts) -> Objections:
    """Every live action has exactly one row of its version in the queues, in every snapshot."""
    for snapshot in facts.snapshots:
        for id, count in snapshot.not_one_row:
            yield f"{id} was live with {count} rows at {snapshot.at:.3f}"


def restless(facts: Facts) -> Objections:
    """After the last fault everything comes to its end: no action is live, no task waits or is held."""
    if facts.undone:
        yield f"{facts.undone} actions and tasks were left"


def _run(run: Run) -> str:
    return f"attempt {run.attempt} of {run.id} at {run.guid}, tick {run.tick}, by {run.writer} at {run.begun:.3f}"


def _claim(claim: Claim) -> str:
    return f"attempt {claim.attempt} of {claim.id} at {claim.guid} was claimed by {claim.writer} at {claim.at:.3f}"


def _change(change: Change) -> str:
    return f"{change.writer} ({change.op} of {change.place} {change.id} at {change.guid}, seq {change.seq})"


OF_ACTIONS: tuple[Callable[[Facts], Objections], ...] = (
    lost,
    unfinished,
    unexpected,
    early,
    superseded,
    doubled,
    abandoned,
    claimed_once,
    overlapping,
    claimed_without_shard,
    fenced,
    recorded_by_others,
    made_up,
    counted,
    one_live_row,
    restless,
)
