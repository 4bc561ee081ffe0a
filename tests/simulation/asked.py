"""What clients ask of actions, noted in their own words before the product hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from matrixsched.app import App
from matrixsched.calls import Call, Scheduled, ScheduledMany
from matrixsched.handlers import Handler
from matrixsched.rules.schedule import Repeat
from simulation.commit_checkers import Commit
from simulation.database import ActionRow, moment
from simulation.history import Operation


@dataclass(frozen=True, slots=True)
class Asked:
    """When an action is to run, and under which terms."""

    at: datetime | None = None
    delay: timedelta | None = None
    repeat: Repeat | None = None
    start_within: timedelta | None = None
    expires_at: datetime | None = None
    is_change: bool = False
    """Only of its time: the terms are those of the version before."""

    def begins(self, now: datetime) -> datetime:
        return self.at if self.at is not None else now + (self.delay or timedelta(0))


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A version of an action as it was asked for, and when it was written."""

    asked: Asked
    called_at: datetime
    written_at: datetime

    @property
    def begins_at(self) -> datetime:
        return self.asked.begins(self.written_at)


@dataclass(slots=True)
class AskedNotes:
    """What was asked by each call, and the versions that came of it."""

    by_operation: dict[Operation, dict[str, Asked]] = field(default_factory=dict)
    versions: dict[str, Version] = field(default_factory=dict)
    """By guid; those that no client asked for are not among them."""

    def note(self, operation: Operation | None, action_id: str | None, asked: Asked) -> None:
        if operation is not None and action_id is not None:
            self.by_operation.setdefault(operation, {})[action_id] = asked

    def committed(self, commit: Commit) -> None:
        for action in new_versions(commit):
            operation = commit.world.history.operation_of.get(UUID(action.guid))
            if operation is None or (asked := self.by_operation.get(operation, {}).get(action.id)) is None:
                continue
            version = Version(asked, operation.called_at, moment(commit.now))
            if not asked.is_change:
                self.versions[action.guid] = version
            elif (earlier := commit.before.actions.get(action.id)) and earlier.guid in self.versions:
                self.versions[action.guid] = _moved(version, earlier, self.versions[earlier.guid])


def _moved(version: Version, row: ActionRow, earlier: Version) -> Version:
    """A change keeps the terms, and a finished action that is run again has no end any more."""
    asked = replace(earlier.asked, at=version.asked.at, delay=version.asked.delay, is_change=True)
    if row.state != "live":
        asked = replace(asked, expires_at=None)
    return replace(version, asked=asked)


def new_versions(commit: Commit) -> Iterable[ActionRow]:
    for action in commit.after.actions.values():
        earlier = commit.before.actions.get(action.id)
        if earlier is None or earlier.guid != action.guid:
            yield action


class NotingApp(App):
    """The application, which notes what its process asks of it."""

    def __init__(self, notes: AskedNotes, operation: Callable[[], Operation | None], **options: Any) -> None:
        super().__init__("sqlite://", **options)
        self._notes = notes
        self._operation = operation

    async def schedule(self, handler: Handler[..., Any] | str, *arguments: Any, **options: Any) -> Scheduled:
        named = {name: options.get(name) for name in ("at", "delay", "repeat", "start_within", "expires_at")}
        self._notes.note(self._operation(), options.get("id"), Asked(**named))
        return await super().schedule(handler, *arguments, **options)

    async def schedule_many(self, calls: Iterable[Call], **options: Any) -> ScheduledMany:
        calls = list(calls)
        for one in calls:
            asked = Asked(one.at, one.delay, one.repeat, one.start_within, one.expires_at)
            self._notes.note(self._operation(), one.id, asked)
        return await super().schedule_many(calls, **options)

    async def reschedule(self, id: str, **options: Any) -> Scheduled:
        self._notes.note(self._operation(), id, Asked(options.get("at"), options.get("delay"), is_change=True))
        return await super().reschedule(id, **options)

    async def run_now(self, id: str, **options: Any) -> Scheduled:
        self._notes.note(self._operation(), id, Asked(is_change=True))
        return await super().run_now(id, **options)

    async def cancel(self, id: str, **options: Any) -> Scheduled:
        self._notes.note(self._operation(), id, Asked(is_change=True))
        return await super().cancel(id, **options)
