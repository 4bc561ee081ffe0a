"""Shard locks: who holds them, what waits behind them, and how to free one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, assert_never
from uuid import UUID

from matrixsched.app import App
from matrixsched.errors import BadInput
from matrixsched.ops.render import Count, Facts, Id, age
from matrixsched.rules.explanation import SILENT_AFTER
from matrixsched.store.values import ShardReport

COUNT_MAX = 10_000


async def listed(app: App) -> list[ShardReport]:
    async with app:
        return await app.shards(count_max=COUNT_MAX)


def row(report: ShardReport) -> Facts:
    oldest = report.oldest_due_at
    return {
        "shard": Id(report.shard),
        "holder": report.locked_by if report.locked else None,
        "since": report.locked_at if report.locked else None,
        "heartbeat_age_s": report.heartbeat_age if report.locked else None,
        "incoming": Count(report.incoming, COUNT_MAX),
        "processing": Count(report.processing, COUNT_MAX),
        "oldest_due_age_s": None if oldest is None else _now(report) - oldest,
    }


def _now(report: ShardReport) -> datetime:
    """The database's time when it answered."""
    return report.heartbeat_at + report.heartbeat_age


def next_move(reports: Sequence[ShardReport], options: str = "") -> str:
    """What an operator who has read the table may want to do; `options` make a command reach the same database."""
    silent = [report for report in reports if report.locked and report.heartbeat_age > SILENT_AFTER]
    waiting = [report for report in reports if report.incoming or report.oldest_due_at is not None]
    held = sum(report.locked for report in reports)
    counts = f"{len(reports)} shards, {held} held, {len(waiting)} with incoming rows or work that is due."
    if silent:
        longest = max(silent, key=lambda report: report.heartbeat_age)
        return (
            f"{counts} Shard {longest.shard} has had no heartbeat for {age(longest.heartbeat_age)}: a worker takes it "
            f"over by itself; to free it now, `matrixsched shards release {longest.shard}{options}`."
        )
    if waiting and not held:
        return f"{counts} If that stays so, no worker is running: start one with `matrixsched worker MODULE:APP`."
    return f"{counts} A shard is held for milliseconds at a time: nothing to do."


Verdict = Literal["free", "unconfirmed", "released", "lost"]


@dataclass(frozen=True, slots=True)
class Release:
    """A shard that somebody wants to be free, and what came of it."""

    report: ShardReport
    verdict: Verdict
    guid: UUID
    """Under which it was to be released."""

    @property
    def facts(self) -> Facts:
        report = self.report
        return {
            "shard": Id(report.shard),
            "holder": report.locked_by if report.locked else None,
            "guid": str(report.lock_guid) if report.locked else None,
            "since": report.locked_at if report.locked else None,
            "heartbeat_age_s": report.heartbeat_age if report.locked else None,
            "verdict": self.verdict,
        }

    def said(self, options: str = "") -> str:
        """For people; `options` make a command reach the same database."""
        shard = self.report.shard
        match self.verdict:
            case "free":
                return f"shard {shard} is free: nothing to do."
            case "unconfirmed":
                command = f"matrixsched shards release {shard}{options} --guid {self.guid} --yes"
                return f"nothing was done. To take the lock from its holder: `{command}`."
            case "released":
                return f"shard {shard} is free: the next worker that asks takes it."
            case "lost" if self.guid != self.report.lock_guid:
                return (
                    f"nothing was done: the lock of shard {shard} has another guid, {self.report.lock_guid}, "
                    f"not {self.guid}. See `matrixsched shards list{options}`."
                )
            case "lost":
                return (
                    f"nothing was done: shard {shard} changed hands meanwhile. See `matrixsched shards list{options}`."
                )
        assert_never(self.verdict)


async def release(app: App, shard: int, guid: UUID | None, *, confirmed: bool) -> Release:
    """Free the shard if it is still held as it was a moment ago, or as `guid` says."""
    async with app:
        reports = {report.shard: report for report in await app.shards(count_max=1)}
        if shard not in reports:
            raise BadInput(f"there is no shard {shard}: this installation has 0 to {len(reports) - 1}")
        report = reports[shard]
        wanted = guid or report.lock_guid
        if not report.locked:
            return Release(report, "free", wanted)
        if wanted != report.lock_guid:
            return Release(report, "lost", wanted)
        if not confirmed:
            return Release(report, "unconfirmed", wanted)
        is_released = await app.release_shard(shard, wanted)
        return Release(report, "released" if is_released else "lost", wanted)
