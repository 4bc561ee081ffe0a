"""How scenes are built: actions in all the states they can be in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from support.interleaving import HANDLER, LEASE, an_action

from interleaver.move import HOUR, SECOND
from interleaver.stage import Setting
from matrixsched.rules.action import Outcome, State
from matrixsched.rules.outcome import Verdict
from matrixsched.store.values import Change, Ended, NewAction


async def write(setting: Setting, **options: Any) -> NewAction:
    new = an_action(setting.now)._replace(**({"guid": setting.guid()} | options))
    await setting.world.run(
        setting.world.do.schedule([new], setting.guid(), replace=True, lock_timeout=None, tell=False)
    )
    setting.facts.versions.append(new.guid)
    if new.id == "a":
        setting.facts.version = new.guid
    return new


async def hold(setting: Setting, shard: int = 0) -> Any:
    """A worker has the shard; its guid."""
    guid = setting.facts.holders[shard] = setting.guid()
    await setting.sql(
        "update matrixsched.shard_locks set locked = true, last_lock_guid = $2, last_locked_by = 'w', "
        "last_heartbeat_at = $3 where shard_id = $1",
        shard,
        guid,
        setting.now,
    )
    return guid


async def move_in(setting: Setting, *, claims: bool, shard: int = 0) -> Any:
    """From incoming to processing; what was claimed."""
    do = setting.world.do
    moved = await setting.world.run(
        do.move(
            shard,
            setting.facts.holders[shard],
            handlers=[HANDLER],
            move_limit=9,
            claim_limit=9 if claims else 0,
            attempt_lease=LEASE,
        )
    )
    return moved.attempts


async def run_it(setting: Setting, **options: Any) -> None:
    """Somebody claims it; then another worker has the shard."""
    await write(setting, **options)
    await hold(setting)
    (setting.facts.attempt,) = await move_in(setting, claims=True)
    await hold(setting)


async def nothing(setting: Setting) -> None:
    await hold(setting)


async def new(setting: Setting) -> None:
    await write(setting)
    await hold(setting)


async def free(setting: Setting) -> None:
    """One row is new, another one waits; nobody has the shard."""
    await write(setting, id="b")
    await hold(setting)
    await move_in(setting, claims=False)
    await write(setting)
    await setting.sql("update matrixsched.shard_locks set locked = false")


async def free_lapsed(setting: Setting) -> None:
    await lapsed(setting)
    await setting.sql("update matrixsched.shard_locks set locked = false")


async def free_replaced(setting: Setting) -> None:
    await replaced(setting)
    await setting.sql("update matrixsched.shard_locks set locked = false")


async def free_blocked(setting: Setting) -> None:
    await blocked(setting)
    await setting.sql("update matrixsched.shard_locks set locked = false")


async def left(setting: Setting) -> None:
    """As `free`, but somebody who does not beat any more believes that he has it."""
    await free(setting)
    await hold(setting)
    setting.later(LEASE + SECOND)


async def waiting(setting: Setting) -> None:
    await new(setting)
    await move_in(setting, claims=False)


async def claimed(setting: Setting) -> None:
    await run_it(setting)


async def lapsed(setting: Setting) -> None:
    await run_it(setting)
    setting.later(LEASE + SECOND)
    await hold(setting)


async def lapsing(setting: Setting) -> None:
    """Its lease ends in a microsecond."""
    await run_it(setting)
    setting.later(LEASE - timedelta.resolution)
    await hold(setting)


async def lapsing_late(setting: Setting) -> None:
    """As `lapsing`, and it expires before that."""
    await run_it(setting, expires_at=setting.now + SECOND)
    setting.later(LEASE - timedelta.resolution)
    await hold(setting)


async def replaced(setting: Setting) -> None:
    """A version is run, the next one is new."""
    await run_it(setting)
    await write(setting)


async def blocked(setting: Setting) -> None:
    """A version is run, the next one waits for its end."""
    await replaced(setting)
    await move_in(setting, claims=True)


async def replaced_lapsing(setting: Setting) -> None:
    """As `replaced`, but the lease of the first ends in a microsecond."""
    await replaced(setting)
    setting.later(LEASE - timedelta.resolution)
    await hold(setting)


async def blocked_lapsing(setting: Setting) -> None:
    await blocked(setting)
    setting.later(LEASE - timedelta.resolution)
    await hold(setting)


async def unblocked(setting: Setting) -> None:
    """As `blocked`, but the lease of the first is over."""
    await blocked(setting)
    setting.later(LEASE + SECOND)
    await hold(setting)


async def stale(setting: Setting) -> None:
    """A version that waits for a far day, replaced by one that is new."""
    await write(setting, at=setting.now + HOUR)
    await hold(setting)
    await move_in(setting, claims=False)
    await write(setting)


async def left_stale(setting: Setting) -> None:
    """As `stale`, but whoever has the shard does not beat any more."""
    await stale(setting)
    setting.later(LEASE + SECOND)


async def cancelled(setting: Setting) -> None:
    """While it was run."""
    await run_it(setting)
    change = Change(shard=0, id="a", guid=setting.guid(), request_guid=setting.guid(), expected_guid=None)
    await setting.world.run(setting.world.do.cancel(change))


async def end_it(setting: Setting) -> None:
    attempt = setting.facts.held_attempt()
    verdict = Verdict(outcome=Outcome.SUCCEEDED, state=State.DONE, tick=attempt.tick, tick_at=attempt.tick_at)
    await setting.world.run(setting.world.do.record([Ended(attempt.claim, verdict)], history_max=50))


async def finished(setting: Setting, **options: Any) -> None:
    """Long ago."""
    await run_it(setting, **options)
    await end_it(setting)
    setting.later(2 * HOUR)
    await hold(setting)


async def finished_dead(setting: Setting) -> None:
    """Long ago; rows of versions before that are left, one in each queue, as whoever was passed over leaves them."""
    await finished(setting)
    await write(setting, id="b")
    await move_in(setting, claims=False)
    await write(setting, id="c")
    for queue in ("processing_queue", "incoming_queue"):
        await setting.sql(f"update matrixsched.{queue} set action_id = 'a' where action_id in ('b', 'c')")
    await setting.sql("delete from matrixsched.scheduled_actions where action_id in ('b', 'c')")


async def cancelled_dead(setting: Setting) -> None:
    """Long ago; whoever ran a version of it was not heard of since, and the row of another one was never moved."""
    await replaced(setting)
    change = Change(shard=0, id="a", guid=setting.guid(), request_guid=setting.guid(), expected_guid=None)
    await setting.world.run(setting.world.do.cancel(change))
    setting.facts.pruned = State.CANCELLED
    setting.later(2 * HOUR)
    await hold(setting)


async def expired(setting: Setting) -> None:
    """While it waited."""
    await write(setting, expires_at=setting.now + SECOND)
    await hold(setting)
    await move_in(setting, claims=False)
    setting.later(2 * SECOND)
    await hold(setting)


async def expired_lapsed(setting: Setting) -> None:
    """While it was run by somebody who does not report back."""
    await run_it(setting, expires_at=setting.now + SECOND)
    setting.later(LEASE + SECOND)
    await hold(setting)
