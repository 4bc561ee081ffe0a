"""Everything an operator can change, each with its entry in the audit log; what API and dashboard call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal
from uuid import UUID

from matrixsched.calls import Call, Exists, Scheduled, ScheduledMany, id_of
from matrixsched.errors import ActionNotFound, DatabaseError
from matrixsched.ops import actions, bulk, fsck, limits, queues, requests, semaphores, shards, templates
from matrixsched.ops.bulk import Chosen, Tally, Verb
from matrixsched.ops.operator import Operator, ids_facts, subject_of
from matrixsched.ops.render import Facts
from matrixsched.rules.action import Action
from matrixsched.rules.limits import Limit
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.rates import Rate
from matrixsched.rules.semaphore import Semaphore
from matrixsched.rules.templates import Template

Progress = Callable[[int], object]

# Actions.


async def cancel(
    operator: Operator, id: str, *, expected_guid: UUID | None = None, request_id: str | None = None
) -> Scheduled:
    async with operator.noting("cancel", id, await _action(operator, id)) as note:
        done = await operator.app.cancel(id, expected_guid=expected_guid, request_id=request_id)
        note.after = _scheduled(done)
        return done


async def run_now(
    operator: Operator, id: str, *, expected_guid: UUID | None = None, request_id: str | None = None
) -> Scheduled:
    async with operator.noting("run_now", id, await _action(operator, id)) as note:
        done = await operator.app.run_now(id, expected_guid=expected_guid, request_id=request_id)
        note.after = _scheduled(done)
        return done


async def run_as_seen(operator: Operator, action: Action, verb: Literal["run_now", "redrive"]) -> Scheduled:
    """Only if no attempt at it began or ended since it was read; `verb` is what whoever asked for it was offered."""
    async with operator.noting(verb, action.id, _before(action)) as note:
        done = await bulk.run_as_seen(operator.app, action)
        note.after = _scheduled(done)
        return done


async def reschedule(
    operator: Operator,
    id: str,
    *,
    at: datetime | None = None,
    delay: timedelta | None = None,
    expected_guid: UUID | None = None,
    request_id: str | None = None,
    asked: str | None = None,
) -> Scheduled:
    """`asked`, here and below: what was sent under that name, of which another one is refused."""
    async with operator.noting("reschedule", id, await _action(operator, id)) as note:
        done = await requests.reschedule(
            operator.app,
            id,
            at=at,
            delay=delay,
            expected_guid=expected_guid,
            request_id=request_id,
            asked=asked,
        )
        note.after = _scheduled(done) | {"at": at, "delay_s": delay}
        return done


async def change_many(
    operator: Operator, verb: Verb, selection: Chosen, tally: Tally, progress: Progress = lambda done: None
) -> None:
    """Change all that fit; the tally, the caller's, tells how far it came also if this does not come to its end."""
    ids = selection.ids
    subject = subject_of(ids) if ids else selection.in_words
    asked = ids_facts(ids) if ids else {"filter": selection.in_words}
    async with operator.noting(verb, subject, {"verb": verb, **asked}) as note:
        try:
            await bulk.change(operator.app, selection, tally, progress)
        finally:
            done = {**tally.facts, **ids_facts(tally.changed_ids, tally.changed)}
            note.tell(done, is_done=tally.changed > 0)
        note.after, note.is_change = {**done, "complete": selection.is_complete}, tally.changed > 0


async def _action(operator: Operator, id: str) -> Facts:
    return _before(await operator.app.get(id))


def _before(action: Action) -> Facts:
    return {**actions.row(action), "guid": str(action.meta.guid)}


def _scheduled(done: Scheduled) -> dict[str, object]:
    return {"guid": str(done.guid), "changed": done.changed, "running": done.running}


async def schedule(
    operator: Operator,
    call: Call,
    *,
    exists: Exists = "replace",
    expected_guid: UUID | None = None,
    asked: str | None = None,
) -> Scheduled:
    """What is new is work, and not written down; what replaces an action is an operator's change."""

    async def write() -> Scheduled:
        return await requests.schedule(operator.app, call, exists=exists, expected_guid=expected_guid, asked=asked)

    before = None if call.id is None or exists != "replace" else await _action_or_none(operator, call.id)
    if before is None:
        done = await write()
        if exists == "replace" and done.changed and not done.created:
            await _note_late(operator, done.id, _scheduled(done))
        return done
    async with operator.noting("replace", str(call.id), before) as note:
        done = await write()
        note.after = _scheduled(done)
        return done


async def schedule_many(
    operator: Operator, calls: Sequence[Call], *, exists: Exists = "replace", asked: Sequence[str] | None = None
) -> ScheduledMany:
    """The same of many, each with its id."""
    app, ids = operator.app, [str(id_of(call)) for call in calls]
    there = await _ids_there(operator, ids) if exists == "replace" else []
    if not there:
        done = await requests.schedule_many(app, calls, exists=exists, asked=asked)
        if done.replaced:
            await _note_late(operator, subject_of(ids), {**_many(done), **ids_facts(ids)})
        return done
    before = {"there": len(there), **ids_facts(there)}
    async with operator.noting("replace", subject_of(there), before) as note:
        done = await requests.schedule_many(app, calls, exists=exists, asked=asked)
        note.after, note.is_change = _many(done), done.created + done.replaced > 0
        return done


async def _note_late(operator: Operator, subject: str, after: Facts) -> None:
    """Of what somebody else has made while it was about to be made here, so that it was replaced: better than never."""
    with suppress(DatabaseError):  # it is done, and must not be told as if it were not
        async with operator.noting("replace", subject) as note:
            note.after = after


def _many(done: ScheduledMany) -> Facts:
    return {"total": done.total, "created": done.created, "replaced": done.replaced, "kept": done.kept}


async def _action_or_none(operator: Operator, id: str) -> Facts | None:
    with suppress(ActionNotFound):
        return await _action(operator, id)
    return None


async def _ids_there(operator: Operator, ids: Sequence[str]) -> list[str]:
    scheduler = operator.app.scheduler
    return sorted(action.id for action in await scheduler.read(scheduler.finding_many(ids), None))


# Shards.


async def release_shard(operator: Operator, shard: int, guid: UUID | None) -> shards.Release:
    found = await shards.release(operator.app, shard, guid, confirmed=False)
    if found.verdict != "unconfirmed":
        return found
    async with operator.noting("release_shard", f"shard {shard}", found.facts) as note:
        released = await shards.release(operator.app, shard, found.guid, confirmed=True)
        note.after = released.facts
        return released


# Templates.


async def set_template(operator: Operator, name: str, **changes: object) -> Template:
    before = await templates.standing_or_none(operator.app, name)
    async with operator.noting("set_template", name, {} if before is None else before.row) as note:
        written = await operator.app.templates.set(name, **changes)  # type: ignore[arg-type]
        note.is_done = True
        standing = await templates.standing(operator.app, name) if before is None else replace(before, template=written)
        note.after = standing.row
        return written


async def pause_template(operator: Operator, name: str, until: datetime | timedelta | None = None) -> Template:
    before = await templates.standing(operator.app, name)
    async with operator.noting("pause_template", name, before.row) as note:
        written = await operator.app.templates.pause(name, until)
        note.after = {"paused": True, "paused_until": written.paused_until}
        return written


async def resume_template(operator: Operator, name: str) -> Template:
    before = await templates.standing(operator.app, name)
    async with operator.noting("resume_template", name, before.row) as note:
        written = await operator.app.templates.resume(name)
        note.after = {"paused": False}
        return written


async def stop_template(
    operator: Operator, name: str, *, within: timedelta | None = None, progress: Progress = lambda done: None
) -> tuple[int, bool]:
    """Cancel everything of it that has not gone out; how many that were, and whether all is through.

    After `within` it is left as far as it came; done again, it goes on.
    """
    before = await templates.standing(operator.app, name)
    clock = operator.app.clock
    ends = None if within is None else clock.monotonic() + within.total_seconds()
    async with operator.noting("stop_template", name, before.row) as note:
        cancelled, is_complete = 0, True

        def tell(count: int) -> None:
            """Between two batches, so that none is cut off."""
            nonlocal cancelled
            cancelled = count
            note.tell({"cancelled": count})
            progress(count)
            if ends is not None and clock.monotonic() > ends:
                raise _Enough

        try:
            cancelled = await operator.app.templates.stop(name, progress=tell)
        except _Enough:
            is_complete = False
        note.after = {"cancelled": cancelled, "complete": is_complete}
        return cancelled, is_complete


class _Enough(Exception):
    """It has taken as long as it may."""


async def remove_template(operator: Operator, name: str) -> None:
    before = await templates.standing(operator.app, name)
    async with operator.noting("remove_template", name, before.row):
        await operator.app.templates.remove(name)


async def set_quota(operator: Operator, **changes: object) -> QuotaSettings:
    before = templates.quota_facts(await templates.settings(operator.app))
    async with operator.noting("set_quota", "quota", before) as note:
        written = await templates.settings_changed(operator.app, changes)
        note.after = templates.quota_facts(written)
        return written


# Limits.


async def set_limit(operator: Operator, name: str, rate: str | Rate, *, pool: int = 0) -> Limit:
    async with operator.noting("set_limit", name, await _limit(operator, name)) as note:
        written = await operator.app.limits.set(name, rate, pool=pool)
        note.after = {"rate": str(written.rate), "pool": written.pool}
        return written


async def remove_limit(operator: Operator, name: str) -> bool:
    async with operator.noting("remove_limit", name, await _limit(operator, name)) as note:
        removed = await operator.app.limits.remove(name)
        note.after, note.is_change = {"removed": removed}, removed
        return removed


async def resume_limit(operator: Operator, name: str) -> bool:
    async with operator.noting("resume_limit", name, await _limit(operator, name)) as note:
        resumed = await operator.app.limits.resume(name)
        note.after, note.is_change = {"resumed": resumed}, resumed
        return resumed


async def slow_down_limit(
    operator: Operator, name: str, until: datetime | timedelta, *, rate: str | Rate | None = None, reason: str = ""
) -> Limit:
    async with operator.noting("slow_down_limit", name, await _limit(operator, name)) as note:
        slowed = await operator.app.limits.slow_down(name, until, rate=rate, reason=reason)
        note.after = {
            "slowed_until": slowed.slow_until,
            "slowed_to": str(rate or "nothing"),
            "reason": slowed.slow_reason,
        }
        return slowed


async def _limit(operator: Operator, name: str) -> Facts:
    before = await limits.standing_or_none(operator.app, name)
    return {} if before is None else before.row


# Semaphores.


async def set_semaphore(operator: Operator, wanted: Semaphore) -> semaphores.Standing:
    """Make it, or change it to be so."""
    before = await semaphores.standing_or_none(operator.app, wanted.key)
    async with operator.noting("set_semaphore", wanted.key, {} if before is None else before.facts) as note:
        standing = await semaphores.created(operator.app, wanted)
        if standing.semaphore != wanted:
            standing = await semaphores.changed(
                operator.app,
                wanted.key,
                wanted.active,
                wanted.try_release,
                hold_for=wanted.hold_for,
                holds_for_good=wanted.hold_for is None,
            )
        note.after = standing.facts
        return standing


async def create_semaphore(operator: Operator, wanted: Semaphore) -> semaphores.Standing:
    """Make it; one that somebody has made meanwhile stays as it is."""
    async with operator.noting("set_semaphore", wanted.key) as note:
        standing = await semaphores.created(operator.app, wanted)
        note.after = standing.facts
        return standing


async def update_semaphore(
    operator: Operator,
    key: str,
    *,
    active: int | None = None,
    try_release: int | None = None,
    hold_for: timedelta | None = None,
    holds_for_good: bool = False,
) -> semaphores.Standing:
    before = semaphores.settings_facts(await operator.app.semaphores.settings(key))
    async with operator.noting("update_semaphore", key, before) as note:
        standing = await semaphores.changed(
            operator.app, key, active, try_release, hold_for=hold_for, holds_for_good=holds_for_good
        )
        note.after = standing.facts
        return standing


async def release_tasks(operator: Operator, key: str, ids: Sequence[str]) -> int:
    before = {"tasks": [semaphores.task_facts(task)["task"] for task in await semaphores.tasks(operator.app, key, ids)]}
    async with operator.noting("release_tasks", key, before) as note:
        released = await semaphores.released(operator.app, key, ids)
        note.after = {"released": released}
        return released


# Queues.


async def pause_queue(operator: Operator, queue: queues.Named) -> queues.Standing:
    async with operator.noting("pause_queue", str(queue), await _queue(operator, queue)) as note:
        standing = await queues.paused(operator.app, queue)
        note.after = {"paused": True}
        return standing


async def resume_queue(operator: Operator, queue: queues.Named) -> queues.Standing:
    async with operator.noting("resume_queue", str(queue), await _queue(operator, queue)) as note:
        standing = await queues.resumed(operator.app, queue)
        note.after = {"paused": False}
        return standing


async def set_queue(operator: Operator, queue: queues.Named, change: queues.SettingsChange) -> queues.Standing:
    async with operator.noting("set_queue", str(queue), await _queue(operator, queue)) as note:
        standing = await queues.changed(operator.app, queue, change)
        note.after = queues.settings_facts(standing.settings)
        return standing


async def redrive_queue(
    operator: Operator,
    queue: queues.Named,
    ids: Sequence[int] | None = None,
    progress: Progress = lambda done: None,
    *,
    died_by: datetime | None = None,
) -> int:
    change = partial(queues.redriven, died_by=died_by)
    return await _many_tasks(operator, "redrive_queue", "redriven", change, queue, ids, progress)


async def purge_queue_dead(
    operator: Operator,
    queue: queues.Named,
    ids: Sequence[int] | None = None,
    progress: Progress = lambda done: None,
    *,
    died_by: datetime | None = None,
) -> int:
    change = partial(queues.purged_dead, died_by=died_by)
    return await _many_tasks(operator, "purge_queue_dead", "purged", change, queue, ids, progress)


async def purge_queue_waiting(
    operator: Operator, queue: queues.Named, ids: Sequence[int] | None, progress: Progress
) -> int:
    return await _many_tasks(operator, "purge_queue_waiting", "purged", queues.purged_waiting, queue, ids, progress)


async def retry_queue(operator: Operator, queue: queues.Named, ids: Sequence[int] | None, progress: Progress) -> int:
    return await _many_tasks(operator, "retry_queue", "retried", queues.hastened, queue, ids, progress)


async def _many_tasks(
    operator: Operator,
    verb: str,
    word: str,
    change: queues.TasksChange,
    queue: queues.Named,
    ids: Sequence[int] | None,
    progress: Progress,
) -> int:
    """A batch at a time: what is done stays done, whatever becomes of the next one."""
    async with operator.noting(verb, str(queue), await _queue(operator, queue)) as note:

        def tell(count: int) -> None:
            note.tell({word: count}, is_done=count > 0)
            progress(count)

        done = await change(operator.app, queue, ids, tell)
        note.after, note.is_change = {word: done}, done > 0
        return done


async def _queue(operator: Operator, queue: queues.Named) -> Facts:
    return (await queues.standing(operator.app, queue)).facts


# What is wrong.


async def repair(
    operator: Operator, found: fsck.Report, *, keep: int, progress: Progress, note: Progress
) -> fsck.Report:
    """Mend what can be; `note` is told how many are mended so far."""
    before = {"damage": found.damage, "litter": found.litter}
    async with operator.noting("repair", "fsck", before) as entry:

        def tell(mended: int) -> None:
            entry.tell({"mended": mended}, is_done=mended > 0)
            note(mended)

        return await fsck.repaired(operator.app, keep=keep, progress=progress, note=tell)
