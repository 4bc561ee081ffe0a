"""What repeats meets its targets, as Chronos asks: each tick its run, no run without a tick, and an end in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from matrixsched.rules.schedule import CatchUp, Every, Repeat, ticks
from matrixsched.store.values import Answer
from simulation.asked import Version
from simulation.commit_checkers import Objections, name_of
from simulation.history import ClaimNote, RecordNote
from simulation.time_checkers import Target, first_target

if TYPE_CHECKING:
    from simulation.world import World


def on_target(world: World) -> Objections:
    """Every attempt at what repeats is one at the first tick after the last one that ended: none is without a tick."""
    for version, claims in _repeated(world):
        assert version.asked.repeat is not None
        target, tick = first_target(version), claims[0].attempt.tick
        for claimed, record in _with_records(world, claims):
            attempt = claimed.attempt
            if attempt.tick != tick or not target.holds(attempt.tick_at):
                yield f"{name_of(attempt)} is at tick {attempt.tick} of {attempt.tick_at}, not at {tick} of {target}"
                break
            if record is not None and _ends_tick(world, claimed, record):
                target, tick = _next_target(version.asked.repeat, claimed, record), tick + 1


def repeated_to_its_end(world: World) -> Objections:
    """What repeats is over only when no tick is left before its expiry."""
    for version, claims in _repeated(world):
        action = world.last_seen[claims[-1].claim.action_id]
        if action.guid != str(claims[-1].claim.guid) or action.state not in ("done", "failed", "expired"):
            continue
        expires_at, repeat = version.asked.expires_at, version.asked.repeat
        assert repeat is not None
        claimed, record = list(_with_records(world, claims))[-1]
        if expires_at is None or action.state == "failed":
            yield f"{name_of(claimed.attempt)}: it repeats without end, and is {action.state}"
        elif record is not None and record.verdict.state != "live" and _ends_tick(world, claimed, record):
            target = _next_target(repeat, claimed, record)
            if target.latest + repeat.jitter < expires_at:
                yield f"{name_of(claimed.attempt)}: it is {action.state}, though {target} lies before {expires_at}"


def _repeated(world: World) -> Iterator[tuple[Version, list[ClaimNote]]]:
    for guid, version in world.asked.versions.items():
        claims = world.history.claims_of.get(UUID(guid), [])
        if claims and version.asked.repeat is not None:
            yield version, claims


def _with_records(world: World, claims: list[ClaimNote]) -> Iterator[tuple[ClaimNote, RecordNote | None]]:
    recorded = {
        (record.claim.attempt, record.claim.claimed_by): record
        for record in world.history.records
        if record.claim.guid == claims[0].claim.guid and record.answer is Answer.RECORDED
    }
    for claimed in claims:
        yield claimed, recorded.get((claimed.claim.attempt, claimed.claim.claimed_by))


def _ends_tick(world: World, claimed: ClaimNote, record: RecordNote) -> bool:
    """Whether nothing more is tried of this tick."""
    outcome = record.verdict.outcome.value
    if outcome in ("failed", "timed_out"):
        most = world.behaviour(claimed.attempt.handler).retry.max_attempts
        return most is not None and claimed.attempt.tick_failures + 1 >= most
    return outcome in ("succeeded", "missed")


def _next_target(repeat: Repeat, claimed: ClaimNote, record: RecordNote) -> Target:
    """The tick after one that ended with its handler or later, but before it was recorded; by the reckoning of a worker
    who may be ahead by as long as its claim was on the way."""
    run, tick_at = claimed.run, claimed.attempt.tick_at
    ended_at = run.ended_at if run is not None and run.ended_at is not None else claimed.at
    latest = max(tick_at, record.at + (claimed.at - claimed.asked_at))
    earliest = tick_at if isinstance(repeat.misfire, CatchUp) else max(tick_at, min(ended_at, record.at))
    return Target(_tick_after(repeat, earliest), _tick_after(repeat, latest))


def _tick_after(repeat: Repeat, instant: datetime) -> datetime:
    if isinstance(repeat, Every) and repeat.after_end:
        return instant + repeat.interval
    if isinstance(repeat, Every) and repeat.anchor is not None and not repeat.exclude:
        return instant + repeat.interval - (instant - repeat.anchor) % repeat.interval
    return next(ticks(repeat, instant))


AT_THE_END: tuple[Callable[[World], Objections], ...] = (on_target, repeated_to_its_end)
