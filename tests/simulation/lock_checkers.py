"""What must be true whenever a shard is taken, kept or let go; a function each, which yields its objections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

from simulation.commit_checkers import Commit, Objections
from simulation.database import Lock, moment
from simulation.faults import Noted


def taken_when_free(commit: Commit) -> Objections:
    """A shard is taken when nobody holds it, or when its holder has not been heard of for a lease; by a move only then
    when nobody holds it."""
    if commit.transition.name not in ("acquire_shard", "move"):
        return
    lease = commit.world.size.policy.shard_lease // timedelta(microseconds=1)
    for lock in commit.world.database.locked():
        before = commit.world.locks.get(lock.shard)
        was_left = commit.transition.name == "acquire_shard" and before and commit.now - before.heartbeat_at > lease
        if before is not None and before.guid != lock.guid and not was_left:
            yield f"shard {lock.shard} was held, and heard of at {moment(before.heartbeat_at)}"


def kept_by_its_holder(commit: Commit) -> Objections:
    """A lock is prolonged and released only under the guid by which it is held."""
    if commit.transition.name not in ("beat_shard", "release_shard", "close_fence") or not isinstance(
        commit.transition, Noted
    ):
        return
    shard, sync_guid = commit.transition.arguments[:2]
    for before in _changed(commit):
        if (before.shard, before.guid) != (shard, str(sync_guid)):
            yield f"shard {before.shard} was held under {before.guid}, not {sync_guid}"


def _changed(commit: Commit) -> Iterator[Lock]:
    after = {lock.shard: lock for lock in commit.world.database.locked()}
    return (before for shard, before in commit.world.locks.items() if after.get(shard) != before)


AT_EVERY_LOCK: tuple[Callable[[Commit], Objections], ...] = (taken_when_free, kept_by_its_holder)
