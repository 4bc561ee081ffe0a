"""Changing many actions, one by one: each only as it was seen, so that nobody's newer change is undone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from matrixsched.app import App
from matrixsched.calls import Scheduled
from matrixsched.errors import ActionNotFound, DatabaseBusy, GuidMismatch
from matrixsched.ops.render import Facts
from matrixsched.rules.action import Action, State

PAGE = 1000
Verb = Literal["cancel", "run_now", "redrive"]

FINISHED_BADLY = (State.FAILED, State.QUARANTINED, State.EXPIRED)
ALLOWED: dict[Verb, tuple[State, ...]] = {
    "cancel": (State.LIVE,),
    "run_now": tuple(State),
    "redrive": FINISHED_BADLY,
}
"""Actions in which states a verb changes; those in another one are skipped."""
DONE_WORD: dict[Verb, str] = {"cancel": "cancelled", "run_now": "made_due", "redrive": "redriven"}


class Chosen(Protocol):
    """Which actions are changed."""

    @property
    def in_words(self) -> str:
        """For the audit log."""
        ...

    def of(self, app: App) -> AsyncIterator[Action]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which actions: those of these ids, or all that fit."""

    ids: Sequence[str] = ()
    states: Sequence[State] = ()
    handler: str | None = None
    prefix: str | None = None
    due_before: datetime | None = None
    finished_since: datetime | None = None

    @property
    def in_words(self) -> str:
        """For the audit log."""
        if self.ids:
            return ", ".join(self.ids)
        wanted = {
            "state": "/".join(state.value for state in self.states),
            "handler": self.handler,
            "prefix": self.prefix,
            "due_before": self.due_before,
            "finished_since": self.finished_since,
        }
        return ", ".join(f"{name} {value}" for name, value in wanted.items() if value)

    async def of(self, app: App) -> AsyncIterator[Action]:
        for action_id in dict.fromkeys(self.ids):
            yield await app.get(action_id)
        for state in () if self.ids else self.states:
            async for action in self._in_state(app, state):
                yield action

    async def _in_state(self, app: App, state: State) -> AsyncIterator[Action]:
        after: Action | None = None
        while page := await app.list(
            state=state,
            handler=self.handler,
            id_prefix=self.prefix,
            due_before=self.due_before,
            after=after,
            limit=PAGE,
        ):
            after = page[-1]
            for action in page:
                if self._is_recent(action):
                    yield action

    def _is_recent(self, action: Action) -> bool:
        finished_at = action.status.finished_at
        return self.finished_since is None or (finished_at is not None and finished_at >= self.finished_since)


@dataclass(slots=True)
class Tally:
    """What became of them; also before anything was done."""

    verb: Verb
    matched: int = 0
    changed: int = 0
    running: int = 0
    skipped: int = 0

    @property
    def facts(self) -> Facts:
        return {
            "matched": self.matched,
            DONE_WORD[self.verb]: self.changed,
            "running": self.running,
            "skipped": self.skipped,
        }


async def count(app: App, verb: Verb, selection: Selection, *, count_max: int | None = None) -> Tally:
    """How many there are that the verb would change, which is nothing yet; counting stops at `count_max`."""
    tally = Tally(verb)
    async for action in selection.of(app):
        if tally.matched == count_max:
            break
        tally.matched += 1
        tally.running += action.status.running
        tally.skipped += action.status.state not in ALLOWED[verb]
    return tally


async def change(app: App, selection: Chosen, tally: Tally, progress: Callable[[int], object]) -> None:
    """Change all of them; one that somebody changes or locks at the same time is skipped.

    The tally is the caller's, who can tell how far it came if this does not come to its end.
    """
    do = app.cancel if tally.verb == "cancel" else app.run_now
    async for action in selection.of(app):
        tally.matched += 1
        if action.status.state in ALLOWED[tally.verb] and (changed := await _changed(do, action)) is not None:
            tally.changed += 1
            tally.running += changed.running
        else:
            tally.skipped += 1
        progress(tally.matched)


async def _changed(do: Callable[..., Awaitable[Scheduled]], action: Action) -> Scheduled | None:
    try:
        changed = await do(action.id, expected_guid=action.meta.guid)
        return changed if changed.changed else None  # it has ended by itself meanwhile
    except (GuidMismatch, ActionNotFound, DatabaseBusy):
        return None
